"""What one update learns from: responses (rollouts or references), each view's prompts, and who takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from evaluation.problems import Problem
from training.batches import token_index
from training.method import CrossEntropy, Distill, Method, PolicyGradient
from training.objective import Denominators, TokenBatch
from training.rendering import Renderer
from training.rollouts import Rollout, rollout_advantages
from training.views import Rendered, ViewPrompts, view_prompts

Term = Distill | PolicyGradient | CrossEntropy


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that share one source (rollouts or references) and one learning view, with the terms on them."""

    data: Literal["rollouts", "references"]
    terms: dict[str, Term]
    learns: str
    problems: list[Problem]
    responses: list[tuple[int, ...]]
    views: dict[str, ViewPrompts]
    kept: dict[str, list[bool]]
    """Term name -> which rows take part in it."""
    advantages: list[float] | None
    max_new_tokens: int

    @property
    def names(self) -> list[str]:
        return [f"problem {problem.id!r}" for problem in self.problems]

    def token_batch(self, rows: range, device: torch.device) -> TokenBatch:
        """The packed response tokens of the rows (sequence numbers count from the first of them)."""
        responses = self.responses[rows.start : rows.stop]
        sequence, position = token_index(responses)

        def per_token(values: Sequence[float | bool], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values[rows.start : rows.stop], dtype=dtype)[sequence].to(device)

        return TokenBatch(
            ids=torch.tensor([token for response in responses for token in response], dtype=torch.int64).to(device),
            sequence=sequence.to(device),
            position=position.to(device),
            mask={name: per_token(rows_kept, torch.bool) for name, rows_kept in self.kept.items()},
            advantage={}
            if self.advantages is None
            else {
                name: per_token(self.advantages, torch.float32)
                for name, term in self.terms.items()
                if isinstance(term, PolicyGradient)
            },
        )

    def denominators(self) -> Denominators:
        """Counts over all rows: micro-batches are reduced by these, so that their losses add up."""
        tokens = {
            name: float(sum(len(response) for response, keep in zip(self.responses, kept, strict=True) if keep))
            for name, kept in self.kept.items()
        }
        return Denominators(tokens, {name: float(sum(kept)) for name, kept in self.kept.items()}, self.max_new_tokens)


def build_streams(
    method: Method, phase: str, problems: Sequence[Problem], rollouts: Sequence[Rollout], renderer: Renderer
) -> list[Stream]:
    """The streams of one update of ``phase``: one for each pair of data source and learning view among its terms."""
    groups: dict[tuple[str, str], dict[str, Term]] = {}
    for name, term in method.terms_of(phase).items():
        groups.setdefault((term.data, term.of), {})[name] = term
    rendered: Rendered = {(rollout.problem.id, None): rollout.prompt_ids for rollout in rollouts}
    return [
        _rollout_stream(method, terms, learns, rollouts, renderer, rendered)
        if data == "rollouts"
        else _reference_stream(method, terms, learns, problems, renderer, rendered)
        for (data, learns), terms in groups.items()
    ]


def _rollout_stream(
    method: Method,
    terms: dict[str, Term],
    learns: str,
    rollouts: Sequence[Rollout],
    renderer: Renderer,
    rendered: Rendered,
) -> Stream:
    problems = [rollout.problem for rollout in rollouts]
    views = view_prompts(method.views, _views_of(terms, learns), problems, renderer, rendered)
    kept = _kept(terms, views, len(problems))
    rewarded = {name: term for name, term in terms.items() if isinstance(term, PolicyGradient)}
    advantages = None
    if rewarded:
        kinds = {term.advantage for term in rewarded.values()}
        if len(kinds) > 1:
            raise ValueError(f"terms {sorted(rewarded)} of one batch ask for different advantages")
        computed = rollout_advantages(rollouts, kinds.pop())
        advantages = computed.advantage.tolist()
        for name in rewarded:
            kept[name] = [a and b for a, b in zip(kept[name], computed.keep.tolist(), strict=True)]
    responses = [rollout.completion.token_ids for rollout in rollouts]
    longest = method.sampling.max_new_tokens
    return Stream("rollouts", terms, learns, problems, responses, views, kept, advantages, longest)


def _reference_stream(
    method: Method,
    terms: dict[str, Term],
    learns: str,
    problems: Sequence[Problem],
    renderer: Renderer,
    rendered: Rendered,
) -> Stream:
    views = view_prompts(method.views, _views_of(terms, learns), problems, renderer, rendered)
    responses = [_reference(problem, renderer) for problem in problems]
    kept = _kept(terms, views, len(problems))
    longest = method.sampling.max_new_tokens
    return Stream("references", terms, learns, list(problems), responses, views, kept, None, longest)


def _reference(problem: Problem, renderer: Renderer) -> tuple[int, ...]:
    if not problem.solution:
        raise ValueError(f"problem {problem.id!r} has no solution to train on")
    return renderer.reference_ids(problem.solution)


def _views_of(terms: Mapping[str, Term], learns: str) -> list[str]:
    targets = [term.against for term in terms.values() if isinstance(term, Distill)]
    return list(dict.fromkeys([learns, *targets]))


def _kept(terms: Mapping[str, Term], views: Mapping[str, ViewPrompts], rows: int) -> dict[str, list[bool]]:
    """A row takes part in a term iff every view of the term has a prompt for it."""
    kept = {}
    for name, term in terms.items():
        needed = [views[view].prompts for view in _views_of({name: term}, term.of)]
        kept[name] = [all(prompts[row] is not None for prompts in needed) for row in range(rows)]
    return kept
