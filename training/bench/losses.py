"""The losses that are measured: each as the product's term, and as one would first write it with autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    PolicyGradient,
    Renyi,
    ReverseKL,
    SampledKL,
    TopKSupport,
)
from training.method.terms import AnyTerm

TOP_K = 100
CLIP = 0.05
RENYI_ORDER = 0.95

TokenLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(log-probabilities of student [n, V], of teacher [n, V], token ids [n]) -> summed loss, student with gradient."""


@dataclass(frozen=True)
class MeasuredLoss:
    """``needs_teacher`` is False where the teacher's product would be wasted."""

    term: AnyTerm
    plain: TokenLoss
    needs_teacher: bool = True


def _forward_kl(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    return (teacher.exp() * (teacher - student)).sum()


def _clipped(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    return (teacher.exp() * (teacher - student)).clamp(max=CLIP).sum()


def _reverse_kl(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    return (student.exp() * (student - teacher)).sum()


def _jsd(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    middle = torch.logaddexp(student, teacher) - torch.log(torch.tensor(2.0))
    return 0.5 * (teacher.exp() * (teacher - middle) + student.exp() * (student - middle)).sum()


def _renyi(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    return (torch.logsumexp(RENYI_ORDER * teacher + (1 - RENYI_ORDER) * student, -1) / (RENYI_ORDER - 1)).sum()


def _top_k(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    top = student.topk(min(TOP_K, student.shape[-1] - 1), dim=-1).indices

    def with_tail(of: Tensor) -> Tensor:
        held = of.gather(-1, top)
        rest = torch.log(-torch.expm1(torch.logsumexp(held, -1, keepdim=True).clamp(max=-1e-7)))
        return torch.cat([held, rest], -1)

    return _reverse_kl(with_tail(student), with_tail(teacher), ids)


def _k3(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    log_w = (student - teacher).gather(-1, ids[:, None])
    return (torch.exp(-log_w) - 1 + log_w).sum()


def _policy_gradient(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    label = student.gather(-1, ids[:, None])
    return -torch.exp(label - label.detach()).sum()


def _cross_entropy(student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    return -student.gather(-1, ids[:, None]).sum()


LOSSES: dict[str, MeasuredLoss] = {
    "forward_kl": MeasuredLoss(Distill(), _forward_kl),
    "forward_kl_clip": MeasuredLoss(Distill(entry_clip=CLIP), _clipped),
    "reverse_kl": MeasuredLoss(Distill(divergence=ReverseKL()), _reverse_kl),
    "jsd": MeasuredLoss(Distill(divergence=JSD()), _jsd),
    "renyi": MeasuredLoss(Distill(divergence=Renyi(order=RENYI_ORDER)), _renyi),
    "top_k_tail": MeasuredLoss(Distill(divergence=ReverseKL(), support=TopKSupport(k=TOP_K)), _top_k),
    "sampled_k3": MeasuredLoss(SampledKL(against="teacher", temperature=1.0), _k3),
    "policy_gradient": MeasuredLoss(PolicyGradient(temperature=1.0), _policy_gradient, needs_teacher=False),
    "cross_entropy": MeasuredLoss(CrossEntropy(), _cross_entropy, needs_teacher=False),
}
