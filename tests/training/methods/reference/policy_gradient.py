"""Rewards with verifiable answers: GRPO, Dr.GRPO, DAPO, and what RLSD and GRSD make of their advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.rows import Row, ratio, reduce


def group_advantages(
    rows: Sequence[Row], *, divide_by_std: bool, epsilon: float, population: bool = False
) -> list[float | None]:
    """A_i = R_i − μ, over σ + ε if asked; 0 in a group of equal rewards; None where the reward is None."""
    advantages: list[float | None] = []
    for row in rows:
        scored = [other.reward for other in rows if other.group == row.group and other.reward is not None]
        if row.reward is None:
            advantages.append(None)
        elif max(scored) == min(scored):
            advantages.append(0.0)
        else:
            mean = math.fsum(scored) / len(scored)
            advantage = row.reward - mean
            if divide_by_std:
                degrees = len(scored) - (0 if population else 1)
                deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in scored) / degrees)
                advantage /= deviation + epsilon
            advantages.append(advantage)
    return advantages


def overlong_penalty(length: int, *, longest: int, cache: int, penalty: float = 1.0) -> float:
    """0 up to longest − cache, then down in a line to −penalty at longest (DAPO)."""
    over = length - (longest - cache)
    return 0.0 if over <= 0 else -penalty * min(over, cache) / cache


def surrogate(ratio_t: Tensor, advantage: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """[T] −min(ρ·A, clip(ρ, 1−low, 1+high)·A); where A < 0 at most −c·A."""
    loss = torch.maximum(-advantage * ratio_t, -advantage * torch.clamp(ratio_t, 1 - low, 1 + high))
    if dual is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual * advantage), loss)
    return loss


def k3(row: Row, temperature: float) -> Tensor:
    """[T] π_ref/π − 1 − log(π_ref/π) on the row's ids."""
    gap = row.log_prob("reference", temperature).detach() - row.log_prob("student", temperature)
    return torch.exp(gap) - 1 - gap


def per_token(advantage: float, row: Row) -> Tensor:
    return torch.full((len(row.ids),), advantage, dtype=torch.float64)


def policy_gradient(
    rows: Sequence[Row],
    advantages: Sequence[Tensor | None],
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
    sampler_clip: float | None = None,
    reduction: str = "token_mean",
    longest: int = 0,
    drop_truncated: bool = False,
    temperature: float = 1.0,
) -> Tensor:
    """The clipped surrogate over the rows that have an advantage."""
    values = []
    for row, advantage in zip(rows, advantages, strict=True):
        if advantage is None or (drop_truncated and row.truncated):
            continue
        value = surrogate(ratio(row, temperature), advantage, low=low, high=high, dual=dual)
        if sampler_clip is not None:
            assert row.drawn is not None
            own = row.log_prob("student", temperature).detach()
            old = own if row.old is None else torch.tensor(row.old, dtype=own.dtype)
            value = value * torch.clamp(torch.exp(old - torch.tensor(row.drawn, dtype=own.dtype)), max=sampler_clip)
        values.append(value)
    return reduce(reduction, rows, values, longest)


def _spread(rows: Sequence[Row], advantages: Sequence[float | None]) -> list[Tensor | None]:
    return [None if a is None else per_token(a, row) for row, a in zip(rows, advantages, strict=True)]


def grpo(
    rows: Sequence[Row],
    *,
    epsilon: float = 1e-4,
    clip: float = 0.2,
    kl: float = 0.0,
    reduction: str = "sequence_mean",
    temperature: float = 1.0,
) -> Tensor:
    """1/G Σ_i 1/|y_i| Σ_t of the clipped surrogate with std-normalised advantages, plus β·k3 to the reference."""
    advantages = group_advantages(rows, divide_by_std=True, epsilon=epsilon)
    loss = policy_gradient(
        rows, _spread(rows, advantages), low=clip, high=clip, reduction=reduction, temperature=temperature
    )
    if kl:
        loss = loss + kl * reduce(reduction, rows, [k3(row, temperature) for row in rows])
    return loss


def dr_grpo(rows: Sequence[Row], *, longest: int, clip: float = 0.2, temperature: float = 1.0) -> Tensor:
    """A = R − μ and one constant for every response: 1/(G·L_max)."""
    advantages = group_advantages(rows, divide_by_std=False, epsilon=0)
    return policy_gradient(
        rows,
        _spread(rows, advantages),
        low=clip,
        high=clip,
        reduction="constant",
        longest=longest,
        temperature=temperature,
    )


def dapo(
    rows: Sequence[Row],
    *,
    epsilon: float = 0.0,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = None,
    drop_truncated: bool = False,
    temperature: float = 1.0,
) -> Tensor:
    """1/Σ|y_i|, asymmetric clip; rewards come with their length penalty."""
    advantages = group_advantages(rows, divide_by_std=True, epsilon=epsilon)
    return policy_gradient(
        rows,
        _spread(rows, advantages),
        low=low,
        high=high,
        dual=dual,
        drop_truncated=drop_truncated,
        temperature=temperature,
    )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def rlsd_advantage(advantage: float, gap: Tensor, *, share: float = 0.5, bound: float = 0.2) -> Tensor:
    """[T] A·[(1−λ) + λ·clip(exp(sign(A)·Δ), 1−ε, 1+ε)], Δ_t = log q(y_t) − log π_old(y_t)."""
    weight = torch.clamp(torch.exp(_sign(advantage) * gap), 1 - bound, 1 + bound)
    return advantage * ((1 - share) + share * weight)


def log_ratio_to_teacher(row: Row, temperature: float = 1.0) -> Tensor:
    """[T] Δ_t = sg[log q(y_t) − log π_old(y_t)]."""
    own = row.log_prob("student", temperature).detach()
    old = own if row.old is None else torch.tensor(row.old, dtype=own.dtype)
    return row.log_prob("teacher", temperature).detach() - old


def rlsd(
    rows: Sequence[Row],
    *,
    share: float = 0.5,
    bound: float = 0.2,
    epsilon: float = 1e-6,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
    reduction: str = "token_mean",
    temperature: float = 1.0,
) -> Tensor:
    """The clipped surrogate with RLSD's advantages; a row whose teacher has no context keeps its plain one."""
    plain = group_advantages(rows, divide_by_std=True, epsilon=epsilon)
    advantages: list[Tensor | None] = []
    for row, advantage in zip(rows, plain, strict=True):
        if advantage is None:
            advantages.append(None)
        elif not row.sees("teacher"):
            advantages.append(per_token(advantage, row))
        else:
            gap = log_ratio_to_teacher(row, temperature)
            advantages.append(rlsd_advantage(advantage, gap, share=share, bound=bound))
    return policy_gradient(
        rows, advantages, low=low, high=high, dual=dual, reduction=reduction, temperature=temperature
    )


def grsd_advantages(
    rows: Sequence[Row],
    plain: Sequence[float | None],
    *,
    share: float = 0.5,
    bound: float = 0.2,
    dead_zone: float = 0.0,
    level: str = "turn",
    normalise: str = "group",
    success: float = 0.5,
    temperature: float = 1.0,
) -> list[Tensor | None]:
    """Â = A·max(1 + λ·ĝ·m, 0.1): one turn a response, or token by token; |u| averaged over the group's m = 1 rows."""

    def mixed(group: int) -> bool:
        passed = {row.reward >= success for row in rows if row.group == group and row.reward is not None}
        return passed == {True, False}

    u: dict[int, Tensor] = {}
    for i, (row, advantage) in enumerate(zip(rows, plain, strict=True)):
        if advantage is not None and mixed(row.group) and row.sees("teacher"):
            gap = log_ratio_to_teacher(row, temperature)
            if level == "turn":
                gap = gap.mean().expand(1)
            u[i] = torch.expm1(torch.clamp(_sign(advantage) * gap, -20, 20))
    result: list[Tensor | None] = []
    for i, (row, advantage) in enumerate(zip(rows, plain, strict=True)):
        if advantage is None:
            result.append(None)
            continue
        factor = torch.ones(len(row.ids), dtype=torch.float64)
        if i in u:
            g = u[i]
            if normalise == "group":
                sizes = torch.cat([u[j].abs() for j in u if rows[j].group == row.group])
                g = g / (sizes.mean() + 1e-6)
            g = torch.where(g.abs() > dead_zone, g, torch.zeros_like(g))
            factor = torch.clamp(1 + share * torch.clamp(g, -bound, bound), min=0.1).expand(len(row.ids))
        result.append(advantage * factor)
    return result
