"""The clipped policy-gradient surrogate of PPO and GRPO, per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.ratios import bounded_ratio


class SurrogateLoss(NamedTuple):
    """Per token: loss, ∂ loss/∂ log π, importance ratio, and flags (0 or 1): clip active, dual clip active, exponent
    bounded."""

    loss: Float[Tensor, " n"]
    slope: Float[Tensor, " n"]
    ratio: Float[Tensor, " n"]
    clipped: Float[Tensor, " n"]
    dual_clipped: Float[Tensor, " n"]
    bounded: Float[Tensor, " n"]


def clipped_surrogate(
    log_prob: Float[Tensor, " n"],
    old_log_prob: Float[Tensor, " n"] | None,
    advantage: Float[Tensor, " n"],
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> SurrogateLoss:
    """−min(ρ·A, clip(ρ, 1 − clip_low, 1 + clip_high)·A), ρ = π(y)/π_old(y); ``old_log_prob`` None means on-policy.

    For A < 0 and ``dual_clip`` c > 1 the loss is at most −c·A. The slope is −ρ·A, and 0 where a clip is active or the
    exponent bounded; on-policy ρ is exactly 1. Advantage and old log-probabilities are constants.
    """
    old = log_prob if old_log_prob is None else old_log_prob.to(log_prob.dtype)
    advantage = advantage.to(log_prob.dtype)
    ratio, bounded = bounded_ratio(log_prob - old)
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    active = clipped < unclipped
    loss = -torch.minimum(unclipped, clipped)
    dual = torch.zeros_like(bounded)
    if dual_clip is not None:
        most = -dual_clip * advantage
        dual = (advantage < 0) & (loss > most)
        loss = torch.where(dual, most, loss)
    return SurrogateLoss(
        loss=loss,
        slope=torch.where(active | dual | bounded, 0.0, -unclipped),
        ratio=ratio,
        clipped=active.to(log_prob.dtype),
        dual_clipped=dual.to(log_prob.dtype),
        bounded=bounded.to(log_prob.dtype),
    )
