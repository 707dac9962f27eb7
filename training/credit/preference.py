"""Unpaired preference between successes and failures (BCO), and its slope at each response (VPD, arXiv:2605.15113)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from training.method import Preference


@dataclass(frozen=True, slots=True)
class PreferenceLoss:
    """``slope`` is ∂L/∂log q(y_t), one for each response (equal at all its tokens), 0 where it takes no part."""

    loss: float
    slope: Float[Tensor, " S"]
    shift: float | None
    """δ after this batch; None while no batch had a scored response."""
    margin: float | None
    """Mean r̃ of successes minus that of failures; None where one class is missing."""


def preference_loss(
    spec: Preference,
    log_ratio: Float[Tensor, " S"],
    lengths: Int[Tensor, " S"],
    passed: Bool[Tensor, " S"],
    scored: Bool[Tensor, " S"],
    shift: float | None,
) -> PreferenceLoss:
    """L = mean over passed of softplus(−(r̃ − δ)) + mean over failed of softplus(r̃ − δ), before the coefficient.

    r̃ = β·Σ_t[log q − log π] = β·``log_ratio`` (over ``lengths`` for length mean), clipped to ±bound, where clipped
    responses have slope 0. δ is the mean of the two class means; with one class missing it is the running δ, and the
    other class's mean where there is none or no memory is kept (shift_rate 1). Unscored responses take no part.
    """
    scale = spec.beta / lengths.to(torch.float64) if spec.length == "mean" else torch.full_like(log_ratio, spec.beta)
    raw = scale.to(torch.float64) * log_ratio.to(torch.float64)
    reward = raw if spec.bound is None else raw.clamp(-spec.bound, spec.bound)
    classes = [scored & passed, scored & ~passed]
    means = [float(reward[rows].mean()) for rows in classes if bool(rows.any())]
    slope = torch.zeros_like(reward)
    if not means:
        return PreferenceLoss(0.0, slope, shift, None)
    if len(means) == 2 or shift is None or spec.shift_rate == 1:
        batch = sum(means) / len(means)
        shift = batch if shift is None else (1 - spec.shift_rate) * shift + spec.shift_rate * batch
    loss = 0.0
    for rows, sign in zip(classes, (-1.0, 1.0), strict=True):
        if bool(rows.any()):
            argument = sign * (reward[rows] - shift)
            loss += float(softplus(argument).mean())
            slope[rows] = sign * torch.sigmoid(argument) / int(rows.sum())
    if spec.bound is not None:
        slope = torch.where(raw.abs() > spec.bound, 0.0, slope)
    return PreferenceLoss(loss, slope * scale, shift, means[0] - means[1] if len(means) == 2 else None)
