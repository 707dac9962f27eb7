"""VPD: an M-step of reverse KL to the feedback-conditioned teacher, an E-step of unpaired preference (BCO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tests.training.methods.reference.rows import Row
from tests.training.methods.reference.sdpo import sdpo


def m_step(rows: Sequence[Row], *, alpha: float = 1.0, k: int | None = 20, temperature: float = 1.0) -> Tensor:
    """SDPO's loss with the live teacher as a constant, over the rows that have feedback."""
    return sdpo(rows, alpha=alpha, k=k, temperature=temperature)


@dataclass(frozen=True)
class EStep:
    loss: Tensor
    shift: float
    rewards: list[float]


def e_step(
    rows: Sequence[Row],
    *,
    beta: float = 0.1,
    length: str = "sum",
    bound: float | None = None,
    threshold: float = 0.5,
    shift_rate: float = 1.0,
    shift_before: float | None = None,
    temperature: float = 1.0,
) -> EStep:
    """The gradient goes through the pass with context (``teacher``) only; ``prior`` is the student's, a constant.

    r̃ = β·Σ_t[log q(y_t|x,C) − log π(y_t|x)], δ the mean of the two class means, without gradient.
    """
    passed: list[Tensor] = []
    failed: list[Tensor] = []
    for row in rows:
        if row.reward is None or not row.sees("teacher", "prior"):
            continue
        gap = row.log_prob("teacher", temperature) - row.log_prob("prior", temperature).detach()
        reward = beta * (gap.sum() if length == "sum" else gap.mean())
        if bound is not None:
            reward = torch.clamp(reward, -bound, bound)
        (passed if row.reward >= threshold else failed).append(reward)
    means = [float(torch.stack(rewards).mean().detach()) for rewards in (passed, failed) if rewards]
    if not means:
        teacher = next(row.logits["teacher"] for row in rows if row.logits["teacher"] is not None)
        return EStep(teacher.sum() * 0, 0.0 if shift_before is None else shift_before, [])
    here = sum(means) / len(means)
    shift = here if shift_before is None else (1 - shift_rate) * shift_before + shift_rate * here
    loss = torch.zeros((), dtype=torch.float64)
    if passed:
        loss = loss + softplus(-(torch.stack(passed) - shift)).mean()
    if failed:
        loss = loss + softplus(torch.stack(failed) - shift).mean()
    return EStep(loss, shift, [float(reward.detach()) for reward in passed + failed])
