"""Rows of ragged responses, and how per-token values become one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One response of T ids; ``logits[view]`` is [T, V] float64, or None where the view has no context for the row."""

    ids: tuple[int, ...]
    logits: dict[str, Tensor | None]
    group: int = 0
    reward: float | None = None
    """None: the grader could not score."""
    truncated: bool = False
    old: tuple[float, ...] | None = None
    """log π_old of each id; None while the policy is the one that drew."""
    drawn: tuple[float, ...] | None = None
    """The sampler's log-probability of each id."""
    reference: tuple[int, ...] = field(default=())
    """Ids of the reference solution y*, end token included."""

    def log_probs(self, view: str, temperature: float = 1.0) -> Tensor:
        """[T, V] log-softmax of the view's logits over the temperature."""
        logits = self.logits[view]
        assert logits is not None
        scaled = logits / temperature
        return scaled - torch.logsumexp(scaled, dim=-1, keepdim=True)

    def log_prob(self, view: str, temperature: float = 1.0) -> Tensor:
        """[T] log-probability of the row's own ids."""
        return self.log_probs(view, temperature)[torch.arange(len(self.ids)), list(self.ids)]

    def sees(self, *views: str) -> bool:
        return all(self.logits.get(view) is not None for view in views)


def ratio(row: Row, temperature: float = 1.0) -> Tensor:
    """[T] ρ_t = π(y_t)/π_old(y_t), with gradient; 1 in value where the row keeps no old policy."""
    now = row.log_prob("student", temperature)
    before = now.detach() if row.old is None else torch.tensor(row.old, dtype=now.dtype)
    return torch.exp(now - before)


TokenLoss = Callable[[Row], Tensor]


def zero(rows: Sequence[Row]) -> Tensor:
    """0 with a graph, for batches in which no row takes part."""
    student = rows[0].logits["student"]
    assert student is not None
    return student.sum() * 0


def token_mean(rows: Sequence[Row], values: Sequence[Tensor], weights: Sequence[Tensor] | None = None) -> Tensor:
    """Σ w·ℓ / Σ w over all tokens of all rows; w = 1 without weights. Only the rows that take part are given."""
    if not values:
        return zero(rows)
    everything = torch.cat(list(values))
    if weights is None:
        return everything.sum() / len(everything)
    weight = torch.cat(list(weights))
    total = weight.sum()
    return zero(rows) if float(total) == 0 else (weight * everything).sum() / total


def sequence_mean(rows: Sequence[Row], values: Sequence[Tensor]) -> Tensor:
    """Mean over rows of the row's mean."""
    return torch.stack([value.mean() for value in values]).mean() if values else zero(rows)


def constant(rows: Sequence[Row], values: Sequence[Tensor], longest: int) -> Tensor:
    """Σ ℓ / (rows · longest)."""
    return torch.cat(list(values)).sum() / (len(values) * longest) if values else zero(rows)


def reduce(reduction: str, rows: Sequence[Row], values: Sequence[Tensor], longest: int = 0) -> Tensor:
    """Unweighted reduction by name."""
    if reduction == "token_mean":
        return token_mean(rows, values)
    if reduction == "sequence_mean":
        return sequence_mean(rows, values)
    return constant(rows, values, longest)
