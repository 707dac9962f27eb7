"""Weights of single tokens that come from the forward pass itself (USD), constants of the loss."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.distributions import IMPOSSIBLE, Distribution
from training.losses.names import plain_number
from training.losses.supports import SupportPair
from training.method import UsdHard, UsdSoft


def difficulty(pair: SupportPair, where: str) -> Float[Tensor, " n"]:
    """d = [log p_T(a*) − log p_S(a*)]₊ at the target's likeliest id a*, in nats (USD): 0 where the student agrees.

    Taken over the whole vocabulary; where the target exists on the support alone (a mixture made there), over the
    support's ids without the tail. ValueError naming ``where`` if the student gives a* probability 0.
    """
    target, student = _over_ids(pair)
    best = target.log_probs.argmax(dim=-1)
    ours = student.at(best)
    if student.has_impossible and bool((ours <= IMPOSSIBLE).any()):
        raise ValueError(f"{where}: the student gives probability 0 to the target's likeliest id")
    return (target.at(best) - ours).clamp(min=0)


def _over_ids(pair: SupportPair) -> tuple[Distribution, Distribution]:
    if pair.whole_target is not None:
        return pair.whole_target, pair.whole
    assert pair.ids is not None
    k = pair.ids.shape[-1]
    target, student = pair.target, pair.student
    return (
        Distribution(target.log_probs[:, :k], target.probs[:, :k], target.has_impossible),
        Distribution(student.log_probs[:, :k], student.probs[:, :k], student.has_impossible),
    )


def usd_weight(
    weighting: UsdSoft | UsdHard, divergence: Float[Tensor, " n"], hard: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """σ((g − λ·d)/τ), or 1[g > λ·d]: how much a token with divergence g and difficulty d (``hard``) counts (USD)."""
    gain = divergence - plain_number(weighting.price, "weighting.price") * hard
    if isinstance(weighting, UsdSoft):
        return torch.sigmoid(gain / weighting.sharpness)
    return (gain > 0).to(gain.dtype)
