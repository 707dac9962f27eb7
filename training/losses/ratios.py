"""Ratios of the probabilities that two policies give a sampled token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from training.losses.bounds import LOG_RATIO_BOUND


class Ratio(NamedTuple):
    """exp of a bounded log-ratio, and where it had to be bounded."""

    ratio: Float[Tensor, " n"]
    bounded: Bool[Tensor, " n"]


class ImportanceWeight(NamedTuple):
    """min(ρ, clip) per token, ρ itself, and where the clip and the bound act."""

    weight: Float[Tensor, " n"]
    ratio: Float[Tensor, " n"]
    clipped: Bool[Tensor, " n"]
    bounded: Bool[Tensor, " n"]

    def moves(self) -> Bool[Tensor, " n"]:
        """Where the weight follows log π, with slope ρ: neither clipped nor bounded."""
        return ~(self.clipped | self.bounded)


def bounded_ratio(log_ratio: Float[Tensor, " n"]) -> Ratio:
    """exp(log_ratio) with the exponent held within ± LOG_RATIO_BOUND."""
    bounded = log_ratio.abs() > LOG_RATIO_BOUND
    return Ratio(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp(), bounded)


def importance_weight(
    log_prob: Float[Tensor, " n"], old_log_prob: Float[Tensor, " n"] | None, clip: float | None
) -> ImportanceWeight:
    """min(ρ, ``clip``), ρ = exp(log_prob − old_log_prob); exactly 1 where there is no old policy (strictly on-policy).

    A clip below 1 acts on-policy as well.
    """
    old = log_prob if old_log_prob is None else old_log_prob.to(log_prob.dtype)
    ratio, bounded = bounded_ratio(log_prob - old)
    if clip is None:
        return ImportanceWeight(ratio, ratio, torch.zeros_like(bounded), bounded)
    return ImportanceWeight(ratio.clamp(max=clip), ratio, ratio > clip, bounded)
