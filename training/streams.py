"""What one phase learns from: responses (rollouts or references), each view's prompts, and how much each row counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from training.batches import token_index
from training.contexts.rows import ContextRow
from training.credit.alignment import Similarity
from training.credit.selection import position_weights
from training.draws import Group
from training.method import AnyTerm, CrossEntropy, Method, PolicyGradient, Position
from training.objective import TokenBatch
from training.rows import advantages, distances, guided, needs_reward, reference_ids, row_weights, taking_part
from training.token_batch import PER_TERM
from training.trainer import Trainer
from training.views import ViewPrompts, view_prompts

RowFlags = dict[str, list[bool]]
RowNumbers = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that share one source (rollouts or references) and one learning view, with the terms on them.

    Everything that goes by term name holds one entry a row.
    """

    data: Literal["rollouts", "references"]
    terms: dict[str, AnyTerm]
    learns: str
    rows: list[ContextRow]
    """``group`` is the place of the row's problem in the phase; rows are in its order."""
    responses: list[tuple[int, ...]]
    views: dict[str, ViewPrompts]
    kept: RowFlags
    """Term -> which rows take part in it."""
    weights: RowNumbers
    """Gates and alignment, where a term has any."""
    advantages: RowNumbers
    guided: RowFlags
    """GRSD's m, for terms with its modulation."""
    labels: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    """What cross-entropy with labels "references" asks for."""
    logprobs: list[tuple[float, ...]] | None = None
    """What the sampler reported."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(update, place among all that was drawn for it) of each rollout."""

    @property
    def names(self) -> list[str]:
        return [f"problem {row.problem.id!r}" for row in self.rows]

    def rows_of(self, groups: range) -> range:
        """The rows of consecutive groups."""
        places = [row for row, content in enumerate(self.rows) if content.group in groups]
        return range(places[0], places[-1] + 1) if places else range(0)

    def token_batch(self, rows: range, device: torch.device) -> TokenBatch:
        """The packed response tokens of the rows, with all that is known before any forward pass."""
        part = slice(rows.start, rows.stop)
        responses = self.responses[part]
        sequence, position = token_index(responses)
        lengths = torch.tensor([len(response) for response in responses], dtype=torch.int64)

        def per_token(values: Sequence[float | bool], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values[part], dtype=dtype)[sequence]

        masks = {name: per_token(flags, torch.bool) for name, flags in self.kept.items()}
        for name, term in self.terms.items():
            masks[name] &= position >= getattr(term, "skip_tokens", 0)
        labels = {name: _padded(given[part], lengths) for name, given in self.labels.items()}
        for name, (_, there) in labels.items():
            masks[name] &= there
        weights = {name: per_token(numbers, torch.float64) for name, numbers in self.weights.items()}
        for name, term in self.terms.items():
            weighting = getattr(term, "weighting", None)
            if isinstance(weighting, Position):
                by_position = position_weights(position, lengths[sequence], weighting.exponent)
                weights[name] = by_position * weights[name] if name in weights else by_position
        drawn = None if self.logprobs is None else [value for row in self.logprobs[part] for value in row]
        return on_device(
            TokenBatch(
                ids=torch.tensor([token for response in responses for token in response], dtype=torch.int64),
                sequence=sequence,
                position=position,
                mask=masks,
                weight=weights,
                labels={name: ids for name, (ids, _) in labels.items()},
                advantage={name: per_token(values, torch.float64) for name, values in self.advantages.items()},
                sampler_logprobs=None if drawn is None else torch.tensor(drawn, dtype=torch.float64),
            ),
            device,
        )


def build_streams(
    trainer: Trainer, method: Method, terms: Mapping[str, AnyTerm], groups: Sequence[Group]
) -> list[Stream]:
    """The streams of one phase: one for each pair of data source and learning view among its terms.

    ``method`` is the method of the update (``Method.at``). The groups' rollouts are numbered by their places here.
    """
    pairs: dict[tuple[Literal["rollouts", "references"], str], dict[str, AnyTerm]] = {}
    for name, term in terms.items():
        pairs.setdefault((term.data, term.of), {})[name] = term
    return [
        _rollout_stream(trainer, method, named, learns, groups)
        if data == "rollouts"
        else _reference_stream(trainer, method, named, learns, groups)
        for (data, learns), named in pairs.items()
    ]


def _rollout_stream(
    trainer: Trainer, method: Method, terms: dict[str, AnyTerm], learns: str, groups: Sequence[Group]
) -> Stream:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rows = [rollout.context_row() for rollout in rollouts]
    names = _views_of(terms, learns)
    critiques = {
        name: {row: rollout.critiques[name] for row, rollout in enumerate(rollouts) if name in rollout.critiques}
        for name in names
    }
    views = view_prompts(method.views, names, rows, trainer.renderer, trainer.language, critiques)
    kept = taking_part(terms, views, len(rows))
    for name, term in terms.items():
        scored = [not needs_reward(term) or row.reward is not None for row in rows]
        dropped = isinstance(term, PolicyGradient) and method.reward.truncated == "drop"
        whole = [not (dropped and rollout.truncated) for rollout in rollouts]
        kept[name] = [all(flags) for flags in zip(kept[name], scored, whole, strict=True)]
    samplers = any(getattr(term, "sampler_importance_clip", None) is not None for term in terms.values())
    return Stream(
        "rollouts",
        terms,
        learns,
        rows,
        [rollout.completion.token_ids for rollout in rollouts],
        views,
        kept,
        row_weights(terms, rows, lambda similarity: distances(similarity, rollouts, trainer.renderer)),
        {name: values for name, term in terms.items() if (values := advantages(term, rollouts)) is not None},
        {name: flags for name, term in terms.items() if (flags := guided(term, rollouts, views)) is not None},
        {
            name: [reference_ids(row.problem, trainer.renderer) for row in rows]
            for name, term in terms.items()
            if isinstance(term, CrossEntropy) and term.labels == "references"
        },
        [rollout.completion.logprobs for rollout in rollouts] if samplers else None,
        [(rollout.update, rollout.index) for rollout in rollouts],
    )


def _reference_stream(
    trainer: Trainer, method: Method, terms: dict[str, AnyTerm], learns: str, groups: Sequence[Group]
) -> Stream:
    rows = [ContextRow(group.problem, place) for place, group in enumerate(groups)]
    views = view_prompts(method.views, _views_of(terms, learns), rows, trainer.renderer, trainer.language)

    def mean_distances(similarity: Similarity) -> list[float]:
        found = [distances(similarity, group.rollouts, trainer.renderer) for group in groups]
        return [sum(values) / len(values) for values in found]

    return Stream(
        "references",
        terms,
        learns,
        rows,
        [reference_ids(row.problem, trainer.renderer) for row in rows],
        views,
        taking_part(terms, views, len(rows)),
        row_weights(terms, rows, mean_distances),
        {},
        {},
    )


def _views_of(terms: Mapping[str, AnyTerm], learns: str) -> list[str]:
    return list(dict.fromkeys([learns, *(view for term in terms.values() for view in term.targets())]))


def _padded(rows: Sequence[Sequence[int]], lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Each row cut or filled up to its length, packed, and where there was something."""
    ids, there = [], []
    for row, length in zip(rows, lengths.tolist(), strict=True):
        ids += [*row[:length], *([0] * (length - len(row)))]
        there += [place < len(row) for place in range(length)]
    return torch.tensor(ids, dtype=torch.int64), torch.tensor(there, dtype=torch.bool)


def on_device(batch: TokenBatch, device: torch.device) -> TokenBatch:
    """``batch`` with every tensor on ``device``."""
    if device.type == "cpu":
        return batch
    return TokenBatch(
        batch.ids.to(device),
        batch.sequence.to(device),
        batch.position.to(device),
        **{name: {key: value.to(device) for key, value in getattr(batch, name).items()} for name in PER_TERM},
        old_logprobs=None if batch.old_logprobs is None else {t: v.to(device) for t, v in batch.old_logprobs.items()},
        sampler_logprobs=None if batch.sampler_logprobs is None else batch.sampler_logprobs.to(device),
    )


def micro_batch(batch: TokenBatch, rows: range) -> TokenBatch:
    """The tokens of some consecutive rows; sequence numbers count from the first of them."""
    inside = (batch.sequence >= rows.start) & (batch.sequence < rows.stop)
    part = batch.take(inside.nonzero().squeeze(-1))
    return replace(part, sequence=part.sequence - rows.start)
