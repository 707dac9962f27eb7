"""USD: token weights from divergence against difficulty, and two dual variables moved by the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence
from tests.training.methods.reference.rows import Row, token_mean


def difficulty(target: Tensor, student: Tensor) -> Tensor:
    """[T] d_t = max(0, log p_T(a*) − log p_S(a*)) at the target's likeliest id a*."""
    best = target.argmax(-1, keepdim=True)
    gap = target.gather(-1, best) - student.gather(-1, best)
    return torch.clamp(gap.squeeze(-1), min=0).detach()


@dataclass(frozen=True)
class UsdTokens:
    loss: list[Tensor]
    weight: list[Tensor]
    difficulty: list[Tensor]

    def load(self) -> float:
        """Σ w·d / N over all response tokens."""
        w, d = torch.cat(self.weight), torch.cat(self.difficulty)
        return float((w * d).sum() / len(d))


def usd_tokens(
    rows: Sequence[Row],
    *,
    price: float,
    sharpness: float = 0.1,
    selection: str = "soft",
    weight_divergence: str = "raw",
    entry_clip: float | None = 0.05,
    temperature: float = 1.1,
) -> UsdTokens:
    """Per token: the clipped forward KL of the loss, the weight (from the raw one unless told), the difficulty."""
    losses, weights, difficulties = [], [], []
    for row in rows:
        target, student = row.log_probs("teacher", temperature).detach(), row.log_probs("student", temperature)
        value = divergence("forward_kl", target, student, entry_clip=entry_clip)
        raw = divergence("forward_kl", target, student)
        g = (raw if weight_divergence == "raw" else value).detach()
        d = difficulty(target, student)
        surplus = g - price * d
        if selection == "soft":
            weight = torch.sigmoid(surplus / sharpness)
        elif selection == "hard":
            weight = (surplus > 0).to(g.dtype)
        else:
            weight = torch.ones_like(g)
        losses.append(value)
        weights.append(weight)
        difficulties.append(d)
    return UsdTokens(losses, weights, difficulties)


def usd(rows: Sequence[Row], *, price: float, **settings: float | str | None) -> Tensor:
    """Σ w·g / Σ w over the whole batch; weights and denominator without gradient."""
    tokens = usd_tokens(rows, price=price, **settings)  # type: ignore[arg-type]
    return token_mean(rows, tokens.loss, tokens.weight)


def duals(
    price: float,
    share: float,
    load: float,
    *,
    capacity: float = 0.3,
    price_rate: float = 0.1,
    share_rate: float = 0.03,
    min_share: float = 0.1,
) -> tuple[float, float]:
    """λ ← max(0, λ + η_λ·(load − ε)), then β ← clip(β + η_β·(ε − load), β_min, 1), both from one load."""
    price = max(0.0, price + price_rate * (load - capacity))
    share = min(1.0, max(min_share, share + share_rate * (capacity - load)))
    return price, share
