"""Divergences between a target and a student, per token; arguments are always (target, student).

Each returns its value and its slope, the partial derivative with respect to the student's log-probabilities taken as
free variables (``supports.SupportPair.by_logits`` is the chain to logits). The target never gets a gradient.
Golden values, natural logarithm, target (1/2, 1/2), student (1/4, 3/4): forward KL 0.143841, reverse KL 0.130812,
JSD(0.5) 0.033822, Rényi(2) 0.287682.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.losses.distributions import Distribution
from training.method import JSD, Divergence, ForwardKL, Renyi, ReverseKL

Direction = Literal["target||student", "student||target"]

SMALL_LOG_SUM = 0.4
"""Below this |log Σ p^ρ q^(1−ρ)| the Rényi divergence is taken as log1p of a sum of expm1, which keeps its digits."""
LARGEST_TILT = 80.0
"""Largest exponent for which expm1 stays finite in fp32."""


class TokenDivergence(NamedTuple):
    """Per token: what is minimised, the same before the entry clip, and the slope; never a graph of autograd."""

    loss: Float[Tensor, " n"]
    unclipped: Float[Tensor, " n"]
    slope: Float[Tensor, "n K"]
    """∂ loss / ∂ log p_S(v)."""
    clipped_entries: Int[Tensor, " n"] | None = None
    """How many of the K summands the clip cut; None without a clip."""


def forward_kl(target: Distribution, student: Distribution, entry_clip: float | None = None) -> TokenDivergence:
    """KL(target ‖ student) = Σ_v p_T(v)·[log p_T(v) − log p_S(v)], in nats (notation.md 1.1)."""
    entries = target.probs * (target.log_probs - student.log_probs)
    return _sum_entries(entries, -target.probs, entry_clip)


def reverse_kl(target: Distribution, student: Distribution, entry_clip: float | None = None) -> TokenDivergence:
    """KL(student ‖ target) = Σ_v p_S(v)·[log p_S(v) − log p_T(v)], in nats."""
    entries = student.probs * (student.log_probs - target.log_probs)
    return _sum_entries(entries, entries + student.probs, entry_clip)


def jsd(target: Distribution, student: Distribution, beta: float, entry_clip: float | None = None) -> TokenDivergence:
    """β·KL(target‖m) + (1−β)·KL(student‖m), m = β·p_T + (1−β)·p_S, for 0 < β < 1, in nats.

    The gradient flows through m as well; its two contributions through m cancel entry by entry, which leaves
    (1−β)·p_S·log(p_S/m). Divide the value by β(1−β) to compare different β. ValueError at the ends: their limit is
    0, and the KLs have names of their own.
    """
    if not 0 < beta < 1:
        raise ValueError(f"jsd needs 0 < beta < 1, got {beta}: its limits are 0; use forward_kl or reverse_kl")
    # log m from the larger of the two, so that equal distributions are exactly 0 apart and log 0 stays finite.
    gap = target.log_probs - student.log_probs
    share_of_smaller = torch.full_like(gap, beta).masked_fill_(gap > 0, 1 - beta)
    log_mixture = gap.abs_().neg_().expm1_().mul_(share_of_smaller).log1p_()
    log_mixture += torch.maximum(target.log_probs, student.log_probs)
    slope = (1 - beta) * student.probs * (student.log_probs - log_mixture)
    entries = beta * target.probs * (target.log_probs - log_mixture) + slope
    return _sum_entries(entries, slope, entry_clip)


def _sum_entries(entries: Tensor, slope: Tensor, entry_clip: float | None) -> TokenDivergence:
    """Sum the vocabulary entries; the clip caps each from above *before* the sum and stops its gradient."""
    unclipped = entries.sum(-1)
    if entry_clip is None:
        return TokenDivergence(unclipped, unclipped, slope)
    cut = entries > entry_clip
    return TokenDivergence(entries.clamp(max=entry_clip).sum(-1), unclipped, slope.masked_fill_(cut, 0.0), cut.sum(-1))


def renyi(
    target: Distribution, student: Distribution, order: float, direction: Direction = "target||student"
) -> TokenDivergence:
    """D_ρ = 1/(ρ−1) · log Σ_v p(v)^ρ q(v)^(1−ρ), with (p, q) = (target, student), or swapped by ``direction``.

    Slope: −π̃ for target‖student and ρ/(ρ−1)·(π̃ − p_S) for student‖target, π̃ ∝ p^ρ q^(1−ρ) (the p_S in it changes no
    logit gradient and saves digits near ρ = 1). ValueError for ρ = 1 or ρ ≤ 0.
    """
    if order <= 0 or order == 1:
        raise ValueError(f"renyi needs an order > 0 other than 1, got {order}: order 1 is forward_kl or reverse_kl")
    first, second = (target, student) if direction == "target||student" else (student, target)
    tilt = (order - 1) * (first.log_probs - second.log_probs)
    exponent = first.log_probs + tilt
    highest = exponent.amax(-1, keepdim=True)
    tilted = (exponent - highest).exp_()
    total = tilted.sum(-1, keepdim=True)
    tilted /= total
    log_sum = (total.log() + highest).squeeze(-1)
    small = (log_sum.abs() < SMALL_LOG_SUM) & (tilt.amax(-1) < LARGEST_TILT)
    excess = (first.probs * tilt.clamp(max=LARGEST_TILT).expm1_()).sum(-1)
    precise = torch.log1p(torch.where(small, excess, 0.0))
    value = torch.where(small, precise, log_sum) / (order - 1)
    if direction == "target||student":
        return TokenDivergence(value, value, tilted.neg_())
    return TokenDivergence(value, value, tilted.sub_(student.probs).mul_(order / (order - 1)))


def divergence(
    spec: Divergence, target: Distribution, student: Distribution, entry_clip: float | None = None
) -> TokenDivergence:
    """The divergence that ``spec`` names. A clip can make the loss negative; ``unclipped`` is not, beyond rounding."""
    if isinstance(spec, ForwardKL):
        return forward_kl(target, student, entry_clip)
    if isinstance(spec, ReverseKL):
        return reverse_kl(target, student, entry_clip)
    if isinstance(spec, JSD):
        return jsd(target, student, spec.beta, entry_clip)
    assert isinstance(spec, Renyi)
    if entry_clip is not None:
        raise ValueError("entry_clip acts on summands and Rényi has none outside its logarithm")
    return renyi(target, student, spec.order, spec.direction)
