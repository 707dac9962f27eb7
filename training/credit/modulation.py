"""Advantages that a view's log-probabilities make or change: teacher log-ratio, RLSD, GRSD."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.method import GrsdModulation, RlsdModulation, TeacherLogRatio

EXPONENT_BOUND = 20.0
"""Bound on the signed log-ratio before GRSD's expm1."""
SCALE_FLOOR = 1e-6
"""Added to GRSD's mean |u|."""
LEAST_FACTOR = 0.1
"""GRSD's factor is never below this: an advantage keeps its sign."""


def teacher_log_ratio(
    spec: TeacherLogRatio, against: Float[Tensor, " n"], own: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """A_t = log p_against(y_t) − log π(y_t), bounded to [low, high]."""
    ratio = against - own
    return ratio if spec.low is None and spec.high is None else ratio.clamp(spec.low, spec.high)


def rlsd(
    share: float, spec: RlsdModulation, advantage: Float[Tensor, " n"], delta: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """A·[(1−λ) + λ·clip(exp(sign(A)·Δ), 1−ε, 1+ε)] (arXiv:2604.03128); λ is ``share``."""
    ratio = (advantage.sign() * delta).exp().clamp(1 - spec.bound, 1 + spec.bound)
    return advantage * ((1 - share) + share * ratio)


def grsd(
    share: float,
    spec: GrsdModulation,
    advantage: Float[Tensor, " n"],
    delta: Float[Tensor, " n"],
    sequence: Int[Tensor, " n"],
    group: Int[Tensor, " n"],
    guided: Bool[Tensor, " n"],
) -> Float[Tensor, " n"]:
    """A·max(1 + λ·ĝ, 0.1) at ``guided`` tokens (m = 1), A elsewhere (arXiv:2607.28076).

    ``sequence`` and ``group`` are labels over the whole batch. At level turn Δ is the mean over the sequence, and the
    mean of |u| over the group counts each sequence once; at level token it counts tokens.
    """
    rows, index = torch.unique(sequence, return_inverse=True)
    turn = spec.level == "turn"
    counts = torch.bincount(index, minlength=len(rows)).to(torch.float64)
    change = delta.to(torch.float64)
    if turn:
        change = (torch.zeros_like(counts).index_add_(0, index, change) / counts)[index]
    signed = (advantage.sign().to(torch.float64) * change).clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
    step = torch.expm1(signed)
    if spec.normalise == "group":
        weight = torch.where(guided, 1.0 / counts[index] if turn else torch.ones_like(step), 0.0)
        labels, place = torch.unique(group, return_inverse=True)
        total = weight.new_zeros(len(labels)).index_add_(0, place, weight * step.abs())
        size = weight.new_zeros(len(labels)).index_add_(0, place, weight)
        step = step / (total / size.clamp(min=1e-300) + SCALE_FLOOR)[place]
    step = torch.where(step.abs() > spec.dead_zone, step, 0.0).clamp(-spec.bound, spec.bound)
    factor = (1 + share * step).clamp(min=LEAST_FACTOR)
    return torch.where(guided, advantage * factor.to(advantage.dtype), advantage)
