"""PAINT-style: the target's logits are pulled to the student's at the positions whose entropies differ most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence, entropy
from tests.training.methods.reference.rows import Row, token_mean


def mismatch_positions(row: Row, *, top_share: float, gap: str, temperature: float) -> list[bool]:
    """b_t = 1 at the ⌈top_share·T⌉ positions with the largest gap of entropies, earlier ones first among equals."""
    target = entropy(row.log_probs("teacher", temperature).detach())
    student = entropy(row.log_probs("student", temperature).detach())
    difference = target - student
    scores = {"absolute": difference.abs(), "target_higher": difference, "student_higher": -difference}[gap].tolist()
    count = math.ceil(round(top_share * len(scores), 9))
    order = sorted(range(len(scores)), key=lambda t: (-scores[t], t))
    return [t in set(order[:count]) for t in range(len(scores))]


def interpolated(row: Row, share: float, positions: Sequence[bool], temperature: float) -> Tensor:
    """[T, V] log-softmax of ((1 − γ·b)·z_T + γ·b·sg[z_S])/temperature."""
    target, student = row.logits["teacher"], row.logits["student"]
    assert target is not None and student is not None
    pull = share * torch.tensor(positions, dtype=target.dtype)[:, None]
    mixed = ((1 - pull) * target + pull * student).detach() / temperature
    return mixed - torch.logsumexp(mixed, dim=-1, keepdim=True)


def paint(
    rows: Sequence[Row],
    *,
    share: float = 0.1,
    positions: str = "entropy_gap",
    top_share: float = 0.1,
    gap: str = "absolute",
    entry_clip: float | None = 0.05,
    temperature: float = 1.1,
) -> Tensor:
    """Clipped forward KL to the interpolated target over all tokens."""
    values = []
    for row in rows:
        places = (
            [True] * len(row.ids)
            if positions == "all"
            else mismatch_positions(row, top_share=top_share, gap=gap, temperature=temperature)
        )
        target = interpolated(row, share, places, temperature)
        values.append(divergence("forward_kl", target, row.log_probs("student", temperature), entry_clip=entry_clip))
    return token_mean(rows, values)
