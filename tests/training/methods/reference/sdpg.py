"""SDPG: outcome policy gradient, gated full-vocabulary reverse KL to the live self-teacher, and a KL surrogate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import clipped, divergence
from tests.training.methods.reference.policy_gradient import group_advantages, per_token, policy_gradient
from tests.training.methods.reference.rows import Row, zero


def schedule(update: int, *, peak: float = 1e-3, warmup: int = 50, decay: int = 350, total: int = 400) -> float:
    """β(k) = β_base·min(1, k/T_warm)·min(1, (T−k)/T_decay)."""
    return peak * min(1.0, update / warmup) * min(1.0, (total - update) / decay)


def kl_surrogate(row: Row, kind: str, temperature: float) -> Tensor:
    """[T] on the row's ids with w = π/π_ref and the gradient through w."""
    log_w = row.log_prob("student", temperature) - row.log_prob("reference", temperature).detach()
    w = torch.exp(log_w)
    if kind == "urkl":
        return 0.5 * log_w**2
    if kind == "ufkl":
        return 1 / w + log_w
    if kind == "rkl":
        return 0.5 * (log_w + 1) ** 2
    return 1 / w


def sdpg(
    rows: Sequence[Row],
    *,
    beta: float,
    alpha: float = 1e-3,
    surrogate: str = "urkl",
    gate: bool = True,
    token_clip: float | None = 20.0,
    epsilon: float = 1e-6,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = 10.0,
    temperature: float = 1.0,
) -> Tensor:
    """All three terms over Σ|y_i| of the batch, gated-out rows counted."""
    advantages = group_advantages(rows, divide_by_std=True, epsilon=epsilon)
    spread = [None if a is None else per_token(a, row) for row, a in zip(rows, advantages, strict=True)]
    loss = policy_gradient(rows, spread, low=low, high=high, dual=dual, temperature=temperature)
    tokens = sum(len(row.ids) for row in rows)
    distilled, surrogates = zero(rows), zero(rows)
    for row, advantage in zip(rows, advantages, strict=True):
        open_gate = advantage is not None and (advantage > 0 or not gate)
        if open_gate:
            target, student = row.log_probs("teacher", temperature).detach(), row.log_probs("student", temperature)
            distilled = distilled + clipped(divergence("reverse_kl", target, student), token_clip).sum()
        surrogates = surrogates + kl_surrogate(row, surrogate, temperature).sum()
    return loss + beta * distilled / tokens + alpha * surrogates / tokens
