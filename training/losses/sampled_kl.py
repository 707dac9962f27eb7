"""Estimates of a divergence from the sampled token alone, with the gradient through its log-probability."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from training.losses.bounds import LOG_RATIO_BOUND

Estimator = Literal["k1", "k2", "k3", "urkl", "ufkl", "rkl", "fkl"]

AT_EQUALITY: dict[Estimator, float] = {
    "k1": 0.0, "k2": 0.0, "k3": 0.0, "urkl": 0.0, "ufkl": 1.0, "rkl": 0.5, "fkl": 1.0
}  # fmt: skip
"""Value where both policies agree; taken off for display, so that every estimator reads 0 there."""
EXPONENTIAL = frozenset({"k3", "ufkl", "fkl"})
"""Estimators with 1/w; the others have no exponent to bound."""


class SampledDivergence(NamedTuple):
    """Per token: the loss, ∂ loss/∂ log π(y_t), and where log w was bounded."""

    loss: Float[Tensor, " n"]
    slope: Float[Tensor, " n"]
    bounded: Bool[Tensor, " n"]


def sampled_kl(log_prob: Float[Tensor, " n"], against: Float[Tensor, " n"], estimator: Estimator) -> SampledDivergence:
    """One estimate a token from ``log_prob`` = log π(y_t) and ``against`` = log p(y_t), w = π/p, in nats.

    k1 log w; k2 and urkl ½(log w)²; k3 1/w − 1 + log w; ufkl 1/w + log w; rkl ½(log w + 1)²; fkl 1/w (SDPG 3.3).
    With y ∼ π the expected gradient of k1 is 0, that of k2 (urkl) is the gradient of KL(π‖p), that of k3 (ufkl) of
    the forward KL of unnormalised measures, Σ p log(p/π) + Σ π. k1, rkl and fkl may be negative for a token.

    In 1/w the exponent −log w is held within ± LOG_RATIO_BOUND; above it the whole loss is held, so that such a token
    has no gradient instead of one in the wrong direction.
    """
    log_ratio = log_prob - against
    if estimator not in EXPONENTIAL:
        nothing = torch.zeros_like(log_ratio, dtype=torch.bool)
        if estimator == "k1":
            return SampledDivergence(log_ratio, torch.ones_like(log_ratio), nothing)
        shifted = log_ratio + 1 if estimator == "rkl" else log_ratio
        return SampledDivergence(shifted.square() / 2, shifted, nothing)
    bounded = log_ratio.abs() > LOG_RATIO_BOUND
    held = log_ratio < -LOG_RATIO_BOUND
    log_ratio = log_ratio.clamp(min=-LOG_RATIO_BOUND)
    exponent = -log_ratio.clamp(max=LOG_RATIO_BOUND)
    if estimator == "fkl":
        inverse = exponent.exp()
        return SampledDivergence(inverse, torch.where(bounded, 0.0, -inverse), bounded)
    # 1/w − 1 as expm1: near w = 1 the value is a difference of nearly equal numbers.
    excess = exponent.expm1()
    slope = torch.where(held, 0.0, torch.where(bounded, 1.0, -excess))
    return SampledDivergence(excess + log_ratio + (1.0 if estimator == "ufkl" else 0.0), slope, bounded)
