"""What each row of a phase brings to each term: who takes part, gates, advantages, alignment with the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evaluation.problems import Problem
from training.contexts.rows import ContextRow
from training.credit.alignment import SIMILARITIES, Similarity, compared_ids
from training.credit.rewards import gated, mixed_groups
from training.method import AnyTerm, CrossEntropy, Gate, GroupAdvantage, GrsdModulation, PolicyGradient, Preference
from training.rendering import Renderer
from training.rollouts import Rollout, rollout_advantages
from training.views import ViewPrompts

END_OF_THINKING = "</think>"
"""The token that ends a thinking block, in tokenizers that have one."""


def needed_views(term: AnyTerm) -> list[str]:
    """The views without whose prompt a row takes no part in ``term``; a modulation leaves such rows their advantage."""
    modulated = isinstance(term, PolicyGradient) and term.modulation is not None
    return [term.of] if modulated else [term.of, *term.targets()]


def taking_part(terms: Mapping[str, AnyTerm], views: Mapping[str, ViewPrompts], rows: int) -> dict[str, list[bool]]:
    """Term -> which rows every needed view has a prompt for."""
    return {
        name: [all(views[view].prompts[row] is not None for view in needed_views(term)) for row in range(rows)]
        for name, term in terms.items()
    }


def needs_reward(term: AnyTerm) -> bool:
    """Whether rollouts that were not scored take no part in ``term``."""
    relative = isinstance(term, PolicyGradient) and isinstance(term.advantage, GroupAdvantage)
    return relative or isinstance(term, Preference) or getattr(term, "gate", "all") != "all"


def advantages(term: AnyTerm, rollouts: Sequence[Rollout]) -> list[float] | None:
    """The group advantage of each rollout; None for terms without one."""
    if isinstance(term, PolicyGradient) and isinstance(term.advantage, GroupAdvantage):
        return rollout_advantages(rollouts, term.advantage).advantage.tolist()
    return None


def guided(term: AnyTerm, rollouts: Sequence[Rollout], views: Mapping[str, ViewPrompts]) -> list[bool] | None:
    """Whether each rollout's advantage is modulated: it has a context, and for GRSD its group both outcomes."""
    if not isinstance(term, PolicyGradient) or term.modulation is None:
        return None
    seen = [prompt is not None for prompt in views[term.modulation.against].prompts]
    if isinstance(term.modulation, GrsdModulation):
        mixed = mixed_groups([r.reward for r in rollouts], [r.group for r in rollouts])
        return [there and r.group in mixed and r.reward is not None for there, r in zip(seen, rollouts, strict=True)]
    return seen


def row_weights(
    terms: Mapping[str, AnyTerm],
    rows: Sequence[ContextRow],
    distances_of: Callable[[Similarity], list[float]],
) -> dict[str, list[float]]:
    """Term -> gate (0 or 1) times alignment of each row, for the terms that have either."""
    found: dict[str, list[float]] = {}
    for name, term in terms.items():
        gate: Gate = getattr(term, "gate", "all")
        if gate != "all":
            passes = gated(gate, [row.reward for row in rows], [row.group for row in rows])
            found[name] = [float(bool(passed)) for passed in passes]
        if isinstance(term, CrossEntropy) and term.alignment is not None:
            apart = distances_of(term.alignment.similarity)
            if term.alignment.granularity == "batch" and apart:
                apart = [sum(apart) / len(apart)] * len(apart)
            found[name] = [g * d for g, d in zip(found.get(name, [1.0] * len(apart)), apart, strict=True)]
    return found


def distances(similarity: Similarity, rollouts: Sequence[Rollout], renderer: Renderer) -> list[float]:
    """1 − similarity of each rollout and its problem's reference, ids without end and pad tokens."""
    special = frozenset({*renderer.end_ids, renderer.pad_id})
    vocabulary = renderer.tokenizer.get_vocab()
    found = []
    for rollout in rollouts:
        pair = compared_ids(
            rollout.completion.token_ids,
            reference_ids(rollout.problem, renderer),
            special,
            vocabulary.get(END_OF_THINKING),
        )
        found.append(1.0 - SIMILARITIES[similarity](*pair))
    return found


def reference_ids(problem: Problem, renderer: Renderer) -> tuple[int, ...]:
    """The problem's solution as a response. Raises ValueError where it has none."""
    if not problem.solution:
        raise ValueError(f"problem {problem.id!r} has no solution to train on")
    return renderer.reference_ids(problem.solution)
