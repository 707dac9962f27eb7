"""Divergences between a target and a student, per token; arguments are always (target, student).

Both are log-probabilities over one support of K events, [n, K], each row normalised. Golden values, natural
logarithm, target (1/2, 1/2), student (1/4, 3/4): forward KL 0.143841, reverse KL 0.130812, JSD(0.5) 0.033822,
Rényi(2) 0.287682.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from training.method import JSD, Divergence, ForwardKL, Renyi, ReverseKL

Direction = str


class TokenDivergence(NamedTuple):
    """One number a token: what is minimised, the same without the entry clip, and how many entries were clipped."""

    loss: Float[Tensor, " n"]
    unclipped: Float[Tensor, " n"]
    clipped_entries: Float[Tensor, " n"] | None


def forward_kl_entries(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
    """p_T(v)·[log p_T(v) − log p_S(v)]; its sum is KL(target ‖ student)."""
    return target.exp() * (target - student)


def reverse_kl_entries(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
    """p_S(v)·[log p_S(v) − log p_T(v)]; its sum is KL(student ‖ target)."""
    return student.exp() * (student - target)


def jsd_entries(
    target: Float[Tensor, "n K"], student: Float[Tensor, "n K"], beta: float
) -> Float[Tensor, "n K"]:
    """β·p_T·[log p_T − log m] + (1−β)·p_S·[log p_S − log m], m = β·p_T + (1−β)·p_S, for 0 < β < 1.

    The gradient also flows through m. ValueError at the ends: the KLs are not limits of this family.
    """
    if not 0 < beta < 1:
        raise ValueError(f"jsd needs 0 < beta < 1, got {beta}: its limits are 0; use forward_kl or reverse_kl")
    mixture = torch.logaddexp(target + math.log(beta), student + math.log1p(-beta))
    return beta * target.exp() * (target - mixture) + (1 - beta) * student.exp() * (student - mixture)


def forward_kl(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"]) -> Float[Tensor, " n"]:
    """KL(target ‖ student), in nats (notation.md 1.1)."""
    return forward_kl_entries(target, student).sum(-1)


def reverse_kl(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"]) -> Float[Tensor, " n"]:
    """KL(student ‖ target), in nats."""
    return reverse_kl_entries(target, student).sum(-1)


def jsd(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"], beta: float) -> Float[Tensor, " n"]:
    """Generalised Jensen-Shannon divergence, in nats; divide by β(1−β) to compare different β."""
    return jsd_entries(target, student, beta).sum(-1)


def renyi(
    target: Float[Tensor, "n K"],
    student: Float[Tensor, "n K"],
    order: float,
    direction: Direction = "target||student",
) -> Float[Tensor, " n"]:
    """1/(ρ−1) · log Σ_v p(v)^ρ q(v)^(1−ρ), (p, q) = (target, student), or swapped by ``direction``."""
    first, second = (target, student) if direction == "target||student" else (student, target)
    return torch.logsumexp(order * first + (1 - order) * second, dim=-1) / (order - 1)


def token_divergence(
    spec: Divergence,
    target: Float[Tensor, "n K"],
    student: Float[Tensor, "n K"],
    entry_clip: float | None = None,
) -> TokenDivergence:
    """The divergence named by ``spec``; ``entry_clip`` caps every summand from above *before* the sum over events.

    With a clip the loss may be negative; ``unclipped`` never is, beyond rounding.
    """
    if isinstance(spec, Renyi):
        if entry_clip is not None:
            raise ValueError("entry_clip acts on summands and Rényi has none outside its logarithm")
        value = renyi(target, student, spec.order, spec.direction)
        return TokenDivergence(value, value.detach(), None)
    if isinstance(spec, ForwardKL):
        entries = forward_kl_entries(target, student)
    elif isinstance(spec, ReverseKL):
        entries = reverse_kl_entries(target, student)
    else:
        assert isinstance(spec, JSD)
        entries = jsd_entries(target, student, spec.beta)
    unclipped = entries.sum(-1)
    if entry_clip is None:
        return TokenDivergence(unclipped, unclipped.detach(), None)
    loss = entries.clamp(max=entry_clip).sum(-1)
    clipped = (entries.detach() > entry_clip).sum(-1).to(loss.dtype)
    return TokenDivergence(loss, unclipped.detach(), clipped)
