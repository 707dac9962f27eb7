"""SDPO: distillation on the student's top-K with a tail, to a self-teacher that sees a peer's success or feedback."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence, likeliest, normalised, on_support
from tests.training.methods.reference.rows import Row, token_mean


def alpha_divergence(p: Tensor, q: Tensor, alpha: float) -> Tensor:
    """SDPO's family in its own letters, p the student and q the teacher: 0 is KL(q‖p), 1 is KL(p‖q).

    Between, m = (1−a)·p + a·q and (1−a)·KL(p‖m) + a·KL(q‖m).
    """
    if alpha == 0:
        return divergence("forward_kl", q, p)
    if alpha == 1:
        return divergence("reverse_kl", q, p)
    m = torch.log((1 - alpha) * p.exp() + alpha * q.exp())
    to_p = (p.exp() * (p - m)).sum(-1)
    to_q = (q.exp() * (q - m)).sum(-1)
    return (1 - alpha) * to_p + alpha * to_q


def multipliers(row: Row, *, importance_clip: float | None, sampler_clip: float | None, temperature: float) -> Tensor:
    """[T] sg[min(exp(clip(log p − log p_old, ±20)), c)] · min(π_old/π_sampler, c'), each 1 where it is off."""
    own = row.log_prob("student", temperature).detach()
    weight = torch.ones_like(own)
    if importance_clip is not None and row.old is not None:
        log_ratio = torch.clamp(own - torch.tensor(row.old, dtype=own.dtype), -20, 20)
        weight = weight * torch.clamp(log_ratio.exp(), max=importance_clip)
    if sampler_clip is not None:
        assert row.drawn is not None
        old = own if row.old is None else torch.tensor(row.old, dtype=own.dtype)
        weight = weight * torch.clamp(torch.exp(old - torch.tensor(row.drawn, dtype=own.dtype)), max=sampler_clip)
    return weight


def trust_region_teacher(row: Row, *, share: float, temperature: float) -> Tensor:
    """[T, V] log q* ∝ (1−η)·z_ref + η·z_θ, both on the teacher's prompt; no gradient."""
    reference, live = row.logits["reference"], row.logits["teacher"]
    assert reference is not None and live is not None
    return normalised(torch.lerp(reference.detach(), live.detach(), share) / temperature)


def sdpo(
    rows: Sequence[Row],
    *,
    alpha: float,
    k: int | None,
    rest: str = "tail",
    importance_clip: float | None = 2.0,
    sampler_clip: float | None = None,
    temperature: float = 1.0,
    trust_region: float | None = None,
) -> Tensor:
    """Token mean over the rows that have a context; the divergence on the student's K likeliest ids."""
    values = []
    for row in rows:
        if not row.sees("teacher"):
            continue
        student = row.log_probs("student", temperature)
        if trust_region is None:
            teacher = row.log_probs("teacher", temperature).detach()
        else:
            teacher = trust_region_teacher(row, share=trust_region, temperature=temperature)
        p, q = student, teacher
        if k is not None:
            ids = likeliest(student, k)
            p, q = on_support(student, ids, rest), on_support(teacher, ids, rest)
        weight = multipliers(row, importance_clip=importance_clip, sampler_clip=sampler_clip, temperature=temperature)
        values.append(weight * alpha_divergence(p, q, alpha))
    return token_mean(rows, values)


def sdpo_sampled(rows: Sequence[Row], *, temperature: float = 1.0) -> Tensor:
    """The sampled-token switch: sg[log p(y_t) − log q(y_t)]·log p(y_t)."""
    values = []
    for row in rows:
        if row.sees("teacher"):
            own, target = row.log_prob("student", temperature), row.log_prob("teacher", temperature)
            values.append((own - target).detach() * own)
    return token_mean(rows, values)
