"""The clipped policy-gradient surrogate of PPO and GRPO, per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Largest |log π − log π_old| that is exponentiated; e^20 ≈ 4.9e8 (SDPO code bounds at the same value)."""


class SurrogateLoss(NamedTuple):
    """Per token: the loss, the importance ratio, and flags (0 or 1) for an active clip and a bounded exponent."""

    loss: Float[Tensor, " n"]
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

    On-policy ρ is 1 with gradient ∇log π. The advantage gets no gradient. Beyond LOG_RATIO_BOUND the exponent, and
    with it the gradient, is cut, and ``bounded`` counts the token.
    """
    old = log_prob.detach() if old_log_prob is None else old_log_prob.detach().to(log_prob.dtype)
    advantage = advantage.detach().to(log_prob.dtype)
    log_ratio = log_prob - old
    ratio = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    with torch.no_grad():
        active = (clipped < unclipped).to(log_prob.dtype)
        bounded = (log_ratio.abs() > LOG_RATIO_BOUND).to(log_prob.dtype)
    return SurrogateLoss(-torch.minimum(unclipped, clipped), ratio.detach(), active, bounded)
