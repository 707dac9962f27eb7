"""Divergences of two sets of log-probabilities [T, E]; p is the target, q the student."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TAIL_CEILING = -1e-7


def forward_kl_entries(p: Tensor, q: Tensor) -> Tensor:
    """p·(log p − log q), event by event."""
    return p.exp() * (p - q)


def reverse_kl_entries(p: Tensor, q: Tensor) -> Tensor:
    """q·(log q − log p)."""
    return q.exp() * (q - p)


def jsd_entries(p: Tensor, q: Tensor, beta: float) -> Tensor:
    """β·p·log(p/m) + (1−β)·q·log(q/m), m = β·p + (1−β)·q."""
    m = torch.log(beta * p.exp() + (1 - beta) * q.exp())
    return beta * p.exp() * (p - m) + (1 - beta) * q.exp() * (q - m)


def renyi(p: Tensor, q: Tensor, order: float) -> Tensor:
    """[T] 1/(ρ−1) · log Σ p^ρ · q^(1−ρ)."""
    return torch.logsumexp(order * p + (1 - order) * q, dim=-1) / (order - 1)


def divergence(kind: str, p: Tensor, q: Tensor, *, parameter: float = 0.5, entry_clip: float | None = None) -> Tensor:
    """[T] one divergence; ``kind`` is forward_kl, reverse_kl, jsd, renyi or reverse_renyi."""
    if kind == "renyi":
        return renyi(p, q, parameter)
    if kind == "reverse_renyi":
        return renyi(q, p, parameter)
    if kind == "forward_kl":
        entries = forward_kl_entries(p, q)
    elif kind == "reverse_kl":
        entries = reverse_kl_entries(p, q)
    else:
        entries = jsd_entries(p, q, parameter)
    if entry_clip is not None:
        entries = torch.where(entries > entry_clip, torch.full_like(entries, entry_clip), entries)
    return entries.sum(-1)


def clipped(value: Tensor, clip: float | None) -> Tensor:
    """min(value, clip); no gradient where it is clipped."""
    return value if clip is None else torch.where(value > clip, torch.full_like(value, clip), value)


def likeliest(log_probs: Tensor, k: int) -> Tensor:
    """[T, k] ids of the k highest, ties to the lower id."""
    return torch.sort(log_probs.detach(), dim=-1, descending=True, stable=True).indices[:, :k]


def on_support(log_probs: Tensor, ids: Tensor, rest: str) -> Tensor:
    """[T, k+1] with one event for all other ids (``tail``), or [T, k] renormalised; the whole if k covers it."""
    if ids.shape[-1] >= log_probs.shape[-1]:
        return log_probs
    chosen = log_probs.gather(-1, ids)
    mass = torch.logsumexp(chosen, dim=-1, keepdim=True)
    if rest == "renormalise":
        return chosen - mass
    tail = torch.log(-torch.expm1(torch.clamp(mass, max=TAIL_CEILING)))
    return torch.cat([chosen, tail], dim=-1)


def normalised(scores: Tensor) -> Tensor:
    return scores - torch.logsumexp(scores, dim=-1, keepdim=True)


def entropy(log_probs: Tensor) -> Tensor:
    """[T] −Σ p·log p in nats."""
    return -(log_probs.exp() * log_probs).sum(-1)


def full_entropy(vocabulary: int) -> float:
    """Entropy of the uniform distribution."""
    return math.log(vocabulary)
