"""The clipped policy-gradient surrogate of PPO and GRPO, per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Largest |log π − log π_old| that is exponentiated; e^20 ≈ 4.9e8 (SDPO code bounds at the same value)."""


class SurrogateLoss(NamedTuple):
    """Per token: loss, ∂ loss/∂ log π, importance ratio, and flags (0 or 1): clip active, exponent bounded."""

    loss: Float[Tensor, " n"]
    slope: Float[Tensor, " n"]
    ratio: Float[Tensor, " n"]
    clipped: Float[Tensor, " n"]
    bounded: Float[Tensor, " n"]


def clipped_surrogate(
    log_prob: Float[Tensor, " n"],
    old_log_prob: Float[Tensor, " n"] | None,
    advantage: Float[Tensor, " n"],
    clip_low: float,
    clip_high: float,
) -> SurrogateLoss:
    """−min(ρ·A, clip(ρ, 1 − clip_low, 1 + clip_high)·A), ρ = π(y)/π_old(y); ``old_log_prob`` None means on-policy.

    The slope is −ρ·A, and 0 where the clip is active or the exponent bounded; on-policy ρ is exactly 1. Advantage
    and old log-probabilities are constants.
    """
    old = log_prob if old_log_prob is None else old_log_prob.to(log_prob.dtype)
    advantage = advantage.to(log_prob.dtype)
    log_ratio = log_prob - old
    bounded = log_ratio.abs() > LOG_RATIO_BOUND
    ratio = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    active = clipped < unclipped
    return SurrogateLoss(
        loss=-torch.minimum(unclipped, clipped),
        slope=torch.where(active | bounded, 0.0, -unclipped),
        ratio=ratio,
        clipped=active.to(log_prob.dtype),
        bounded=bounded.to(log_prob.dtype),
    )
