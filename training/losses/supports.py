"""Supports: which events of the vocabulary a divergence looks at.

Probabilities always come from the full softmax. The tail bucket is a coarsening, so a divergence over k + 1 events
never exceeds the full one; renormalising over k ids can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.losses.bounds import SMALLEST_TAIL
from training.losses.distributions import Distribution, check_shared, softmax
from training.method import FullSupport, Support, TopKSupport


@dataclass(frozen=True)
class SupportPair:
    """Target and student over the same K events, and the way back to the student's vocabulary."""

    target: Distribution
    student: Distribution
    whole: Distribution
    """The student over all V ids."""
    ids: Int[Tensor, "n k"] | None = None
    """The vocabulary ids of the first k events; None for the whole vocabulary in order."""
    tail_moves: Bool[Tensor, "n 1"] | None = None
    """With a tail: False where the student's tail sits at its floor. None: renormalised, or the full support."""
    whole_target: Distribution | None = None
    """The target over all V ids, where it exists there."""

    def by_logits(self, slope: Float[Tensor, "n K"]) -> Float[Tensor, "n V"]:
        """∂ℓ/∂z of the student's logits, from the slope G = ∂ℓ/∂ log p over the K events.

        With S = Σ_K G: G − p·S where the events are the ids themselves; under renormalisation G − p̃·S on the support
        and 0 off it; with a tail G − p·S on the top and p·(G(⊥)/p(⊥) − S) off it. Each is the exact chain rule with
        the large terms of a small tail cancelled by hand.
        """
        if self.ids is None:
            return (self.whole.probs * -slope.sum(-1, keepdim=True)).add_(slope)
        if self.tail_moves is None:
            inside = slope - self.student.probs * slope.sum(-1, keepdim=True)
            return torch.zeros_like(self.whole.probs).scatter_(-1, self.ids, inside)
        top, tail = self.student.probs[:, :-1], self.student.probs[:, -1:]
        tail_slope = torch.where(self.tail_moves, slope[:, -1:], 0.0)
        total = slope[:, :-1].sum(-1, keepdim=True) + tail_slope
        outside = self.whole.probs * (tail_slope / tail - total)
        return outside.scatter_(-1, self.ids, slope[:, :-1] - top * total)


def label_by_logits(slope: Float[Tensor, " n"], ids: Int[Tensor, " n"], student: Distribution) -> Float[Tensor, "n V"]:
    """∂ℓ/∂z for a loss of log p(id) alone: G·(onehot(id) − p)."""
    return (student.probs * -slope[:, None]).scatter_add_(-1, ids[:, None], slope[:, None])


def top_ids(of: Distribution, k: int) -> Int[Tensor, "n k"]:
    """The k likeliest ids of each row."""
    return of.log_probs.topk(k, dim=-1).indices


def with_tail(of: Distribution, ids: Int[Tensor, "n k"]) -> tuple[Distribution, Bool[Tensor, "n 1"]]:
    """The events ``ids`` plus one for the rest, p(⊥) = max(1 − Σ_k p, SMALLEST_TAIL).

    The rest is added up directly: log(−expm1(log Σ_k p)) is the same number but loses its digits in fp32 where the
    top k hold nearly everything. The second result is False where the floor holds, so that the tail no longer
    depends on the k events.
    """
    rest = of.probs.scatter(-1, ids, 0.0).sum(-1, keepdim=True)
    tail = rest.clamp(min=SMALLEST_TAIL)
    log_probs = torch.cat([of.log_probs.gather(-1, ids), tail.log()], dim=-1)
    probs = torch.cat([of.probs.gather(-1, ids), tail], dim=-1)
    return Distribution(log_probs, probs, of.has_impossible), rest > SMALLEST_TAIL


def on_support(of: Distribution, ids: Int[Tensor, "n k"], spec: TopKSupport) -> Distribution:
    """The probabilities of ``ids``, with a tail event or renormalised as ``spec`` says."""
    if spec.rest == "tail":
        return with_tail(of, ids)[0]
    return replace(softmax(of.at_ids(ids).log_probs), has_impossible=of.has_impossible)


def restrict(spec: Support, target: Distribution, student: Distribution, where: str = "support") -> SupportPair:
    """Both sides on the support ``spec``; k of the whole vocabulary or more is the full support.

    Raises ValueError (naming ``where``) if an id of the support is impossible for one side only.
    """
    if isinstance(spec, FullSupport) or spec.k >= target.log_probs.shape[-1]:
        check_shared(target, student, where)
        return SupportPair(target, student, student, whole_target=target)
    ids = top_ids(target if spec.of == "target" else student, spec.k)
    check_shared(target.at_ids(ids), student.at_ids(ids), where)
    if spec.rest == "renormalise":
        return SupportPair(
            on_support(target, ids, spec), on_support(student, ids, spec), student, ids, whole_target=target
        )
    coarse_student, moves = with_tail(student, ids)
    return SupportPair(on_support(target, ids, spec), coarse_student, student, ids, moves, target)
