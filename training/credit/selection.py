"""Which tokens a term learns from: TIP's selection, weights by position, and gaps of entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.method import TopTokens

ROUNDING = 1e-9
"""share · count may miss an integer by rounding (0.29 · 100 < 29): differences below this are none."""


def min_max(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """(v − min) / (max − min); 0 where all are equal."""
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return torch.zeros_like(values) if low == high else (values - low) / (high - low)


def token_scores(
    weighting: TopTokens,
    entropy: Float[Tensor, " n"],
    divergence: Float[Tensor, " n"] | None,
    forward_kl: Float[Tensor, " n"] | None,
) -> Float[Tensor, " n"]:
    """TIP's score of each token of the batch, fp64 (arXiv:2604.14084).

    ``entropy`` is the student's, in any unit (the scaling removes it); soft_or needs ``divergence`` (the term's own,
    unclipped), overconfident ``forward_kl`` = KL(target‖student). The percentile is interpolated linearly.
    """
    entropy = entropy.to(torch.float64)
    if not len(entropy):
        return entropy
    spread = min_max(entropy.clamp(max=_quantile(entropy, weighting.entropy_percentile)))
    if weighting.score == "entropy":
        return spread
    if weighting.score == "overconfident":
        assert forward_kl is not None
        return forward_kl.to(torch.float64) * (1 - spread)
    assert divergence is not None
    apart = min_max(divergence.to(torch.float64))
    return spread + apart - spread * apart


def top_tokens(score: Float[Tensor, " n"], sequence: Int[Tensor, " n"], keep: float) -> Bool[Tensor, " n"]:
    """The max(1, ⌊keep·m⌋) tokens with the highest score of each sequence of m; ties keep the earlier token."""
    return _best(score, sequence, lambda m: max(1, math.floor(keep * m + ROUNDING)))


def gap_positions(
    target_entropy: Float[Tensor, " n"],
    student_entropy: Float[Tensor, " n"],
    sequence: Int[Tensor, " n"],
    top_share: float,
    gap: Literal["absolute", "target_higher", "student_higher"],
) -> Bool[Tensor, " n"]:
    """The ⌈top_share·n⌉ tokens of each sequence where the entropies differ most (PAINT-style); ties: the earlier."""
    difference = target_entropy.to(torch.float64) - student_entropy.to(torch.float64)
    signed = {"absolute": difference.abs(), "target_higher": difference, "student_higher": -difference}[gap]
    return _best(signed, sequence, lambda n: math.ceil(top_share * n - ROUNDING))


def position_weights(position: Int[Tensor, " n"], length: Int[Tensor, " n"], exponent: float) -> Float[Tensor, " n"]:
    """((t + 1)/T)^exponent for token t (from 0) of a response of T tokens, fp64."""
    return ((position + 1).to(torch.float64) / length).pow(exponent)


def _best(score: Tensor, sequence: Tensor, count: Callable[[int], int]) -> Tensor:
    chosen = torch.zeros(len(score), dtype=torch.bool, device=score.device)
    for row in torch.unique(sequence).tolist():
        places = (sequence == row).nonzero().squeeze(-1)
        order = torch.argsort(score[places], descending=True, stable=True)
        chosen[places[order[: count(len(places))]]] = True
    return chosen


def _quantile(values: Tensor, share: float) -> Tensor:
    """The linearly interpolated quantile; torch.quantile refuses more than 2^24 values."""
    ordered = values.sort().values
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], place - below)
