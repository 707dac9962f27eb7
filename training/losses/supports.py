"""Supports: which events of the vocabulary a divergence looks at.

Probabilities always come from the full softmax. The tail bucket is a coarsening, so a divergence over k + 1 events
never exceeds the full one; renormalising over k ids can.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.losses.distributions import Distribution, check_shared, from_log_probs, softmax
from training.method import FullSupport, Support

LARGEST_TOP_LOG_MASS = -1e-7
"""Cap on log Σ_top p, so that the tail keeps a finite log-probability (SDPO and LOPD code)."""


@dataclass(frozen=True)
class SupportPair:
    """Target and student over the same K events, and the way back to the vocabulary."""

    target: Distribution
    student: Distribution
    ids: Int[Tensor, "n k"] | None
    """The vocabulary ids of the first k events; None for the whole vocabulary in order."""
    renormalised: bool = False

    def pull_back(self, slope: Float[Tensor, "n K"]) -> Float[Tensor, "n k"]:
        """From the slope over the K events to that over the student's log-probabilities at ``ids``.

        Tail: ∂ log p(⊥)/∂ log p_i = −p_i / p(⊥), 0 where the tail is at its floor. Renormalised:
        ∂ log p̃_j/∂ log p_i = δ_ij − p̃_i.
        """
        if self.ids is None:
            return slope
        if self.renormalised:
            return slope - self.student.probs * slope.sum(-1, keepdim=True)
        top, tail = self.student.probs[:, :-1], self.student.probs[:, -1:]
        free = tail > -torch.expm1(torch.tensor(LARGEST_TOP_LOG_MASS, dtype=tail.dtype, device=tail.device))
        return slope[:, :-1] - torch.where(free, slope[:, -1:] / tail, 0.0) * top


def top_ids(of: Distribution, k: int) -> Int[Tensor, "n k"]:
    """The k likeliest ids of each row."""
    return of.log_probs.topk(k, dim=-1).indices


def with_tail(top: Float[Tensor, "n k"]) -> Distribution:
    """The k events plus one for the rest, log(1 − Σ_k p) = log(−expm1(s)), s = min(log Σ_k p, −1e-7)."""
    mass = torch.logsumexp(top, dim=-1, keepdim=True).clamp(max=LARGEST_TOP_LOG_MASS)
    return from_log_probs(torch.cat([top, torch.log(-torch.expm1(mass))], dim=-1))


def restrict(spec: Support, target: Distribution, student: Distribution, where: str = "support") -> SupportPair:
    """Both sides on the support ``spec``; k of the whole vocabulary or more is the full support.

    Raises ValueError (naming ``where``) if an id of the support is impossible for one side only.
    """
    if isinstance(spec, FullSupport) or spec.k >= target.log_probs.shape[-1]:
        check_shared(target, student, where)
        return SupportPair(target, student, None)
    ids = top_ids(target if spec.of == "target" else student, spec.k)
    top_target, top_student = _gather(target, ids), _gather(student, ids)
    check_shared(top_target, top_student, where)
    renormalise = spec.rest == "renormalise"
    complete = softmax if renormalise else with_tail
    return SupportPair(complete(top_target.log_probs), complete(top_student.log_probs), ids, renormalise)


def _gather(of: Distribution, ids: Tensor) -> Distribution:
    return Distribution(of.log_probs.gather(-1, ids), of.probs.gather(-1, ids), of.has_impossible)
