"""TIP: keep the tokens of each rollout that score highest."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence, entropy, full_entropy
from tests.training.methods.reference.rows import Row, token_mean


def min_max(values: Tensor) -> Tensor:
    """(v − min)/(max − min); 0 everywhere for a constant."""
    low, high = values.min(), values.max()
    return torch.zeros_like(values) if float(high - low) == 0 else (values - low) / (high - low)


def percentile(values: Tensor, share: float) -> float:
    """Linear interpolation between the two nearest ranks."""
    ranked = sorted(values.tolist())
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def kept(scores: Sequence[float], share: float) -> list[bool]:
    """The max(1, ⌊share·m⌋) highest of m, earlier tokens first among equals."""
    count = max(1, int(Fraction(str(share)) * len(scores)))
    order = sorted(range(len(scores)), key=lambda t: (-scores[t], t))
    chosen = set(order[:count])
    return [t in chosen for t in range(len(scores))]


def selection(
    rows: Sequence[Row], *, keep: float, score: str, kind: str, cut: float = 0.98, temperature: float = 1.0
) -> list[list[bool]]:
    """Which tokens of each row count. ``kind`` is the divergence of the loss, taken before clips for the score."""
    h, delta, forward = [], [], []
    for row in rows:
        target, student = row.log_probs("teacher", temperature).detach(), row.log_probs("student", temperature).detach()
        h.append(entropy(student) / full_entropy(student.shape[-1]))
        delta.append(divergence(kind, target, student))
        forward.append(divergence("forward_kl", target, student))
    spread = torch.cat(h)
    h_hat = min_max(torch.clamp(spread, max=percentile(spread, cut)))
    delta_hat = min_max(torch.cat(delta))
    if score == "soft_or":
        scores = h_hat + delta_hat - h_hat * delta_hat
    elif score == "entropy":
        scores = h_hat
    else:
        scores = torch.cat(forward) * (1 - h_hat)
    parts = torch.split(scores, [len(row.ids) for row in rows])
    return [kept(part.tolist(), keep) for part in parts]


def tip(
    rows: Sequence[Row],
    *,
    keep: float = 0.2,
    score: str = "soft_or",
    kind: str = "reverse_kl",
    entry_clip: float | None = None,
    cut: float = 0.98,
    temperature: float = 1.0,
) -> Tensor:
    """1/|T| Σ over the kept tokens of all rollouts."""
    chosen = selection(rows, keep=keep, score=score, kind=kind, cut=cut, temperature=temperature)
    values, weights = [], []
    for row, mask in zip(rows, chosen, strict=True):
        target, student = row.log_probs("teacher", temperature).detach(), row.log_probs("student", temperature)
        values.append(divergence(kind, target, student, entry_clip=entry_clip))
        weights.append(torch.tensor(mask, dtype=student.dtype))
    return token_mean(rows, values, weights)
