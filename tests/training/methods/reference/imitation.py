"""Learning from given responses: SFT, distillation on references, and on the teacher's own samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence
from tests.training.methods.reference.rows import Row, reduce


def sft(rows: Sequence[Row], *, reduction: str = "token_mean") -> Tensor:
    """−Σ_t log p_S(y_t | x, y_<t); the rows hold the references. Sequence KD: rows that the teacher drew."""
    return reduce(reduction, rows, [-row.log_prob("student") for row in rows])


def soft_distillation(
    rows: Sequence[Row],
    *,
    kind: str = "forward_kl",
    parameter: float = 0.5,
    entry_clip: float | None = None,
    temperature: float = 1.0,
    reduction: str = "token_mean",
) -> Tensor:
    """1/T Σ_t D(p_T(·|x, y*, y_<t) ‖ p_S(·|x, y_<t)) on whatever response the rows hold; rows without a teacher out."""
    values = []
    for row in rows:
        if row.sees("teacher"):
            target = row.log_probs("teacher", temperature).detach()
            student = row.log_probs("student", temperature)
            values.append(divergence(kind, target, student, parameter=parameter, entry_clip=entry_clip))
    return reduce(reduction, rows, values)


def shifted_labels(rows: Sequence[Row]) -> list[Tensor]:
    """−log p_S(y*_t | x, ŷ_<t) for t below both lengths: reference labels behind the rollout's prefix."""
    values = []
    for row in rows:
        both = min(len(row.ids), len(row.reference))
        log_probs = row.log_probs("student")[:both]
        values.append(-log_probs[torch.arange(both), list(row.reference[:both])])
    return values
