"""Supports: which events of the vocabulary a divergence looks at.

Probabilities always come from the full softmax. The tail bucket is a coarsening, so a divergence over k + 1 events
never exceeds the full one; renormalising over k ids can.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.losses.log_probs import check_shared
from training.method import FullSupport, Support, TopKSupport

LARGEST_HEAD_LOG_MASS = -1e-7
"""Cap on log Σ_top p, so that the tail keeps a finite log-probability (SDPO and LOPD code)."""


class SupportPair(NamedTuple):
    """Log-probabilities of both sides over the same K events."""

    target: Float[Tensor, "n K"]
    student: Float[Tensor, "n K"]


def top_ids(log_probabilities: Float[Tensor, "n V"], k: int) -> Int[Tensor, "n k"]:
    """The k likeliest ids of each row; no gradient."""
    return log_probabilities.detach().topk(k, dim=-1).indices


def tail_log_prob(top: Float[Tensor, "n k"]) -> Float[Tensor, "n 1"]:
    """log(1 − Σ_k p), as log(−expm1(s)), s = min(log Σ_k p, −1e-7)."""
    mass = torch.logsumexp(top, dim=-1, keepdim=True).clamp(max=LARGEST_HEAD_LOG_MASS)
    return torch.log(-torch.expm1(mass))


def restrict(
    spec: Support, target: Float[Tensor, "n V"], student: Float[Tensor, "n V"], where: str = "support"
) -> SupportPair:
    """Both sides on the support ``spec``; k of the whole vocabulary or more is the full support.

    Raises ValueError (naming ``where``) if an id of the support is impossible for one side only.
    """
    if isinstance(spec, FullSupport) or spec.k >= target.shape[-1]:
        check_shared(target, student.detach(), where)
        return SupportPair(target, student)
    assert isinstance(spec, TopKSupport)
    ids = top_ids(target if spec.of == "target" else student, spec.k)
    top_target, top_student = target.gather(-1, ids), student.gather(-1, ids)
    check_shared(top_target, top_student.detach(), where)
    if spec.rest == "renormalise":
        return SupportPair(torch.log_softmax(top_target, dim=-1), torch.log_softmax(top_student, dim=-1))
    return SupportPair(
        torch.cat([top_target, tail_log_prob(top_target)], dim=-1),
        torch.cat([top_student, tail_log_prob(top_student)], dim=-1),
    )
