"""The loss written from the equations, in float64, one token at a time; it imports nothing of the product.

p is the target, q the student. Gradients come from autograd through these plain formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

TAIL_FLOOR = -math.expm1(-1e-7)


@dataclass(frozen=True)
class ReferenceTerm:
    """One term, spelled out; ``kind`` is distill, policy_gradient or cross_entropy."""

    kind: str
    divergence: str = "forward_kl"
    parameter: float = 0.5
    """β of a JSD, order of a Rényi divergence."""
    swapped: bool = False
    top_k: int | None = None
    top_of: str = "student"
    rest: str = "tail"
    clip: float | None = None
    temperature: float = 1.0
    reduction: str = "token_mean"
    coefficient: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    scaled = logits.double() / temperature
    weights = torch.exp(scaled - scaled.max().detach())
    return weights / weights.sum()


def supported(p: Tensor, q: Tensor, term: ReferenceTerm) -> tuple[Tensor, Tensor]:
    if term.top_k is None or term.top_k >= len(p):
        return p, q
    ranked = sorted(range(len(p)), key=lambda v: -(p if term.top_of == "target" else q)[v].item())
    chosen = ranked[: term.top_k]
    p_top, q_top = p[chosen], q[chosen]
    if term.rest == "renormalise":
        return p_top / p_top.sum(), q_top / q_top.sum()
    rest_of_p = torch.clamp(1 - p_top.sum(), min=TAIL_FLOOR)
    rest_of_q = torch.clamp(1 - q_top.sum(), min=TAIL_FLOOR)
    return torch.cat([p_top, rest_of_p[None]]), torch.cat([q_top, rest_of_q[None]])


def divergence(p: Tensor, q: Tensor, term: ReferenceTerm) -> Tensor:
    if term.divergence == "renyi":
        rho = term.parameter
        a, b = (q, p) if term.swapped else (p, q)
        return torch.log(torch.sum(a**rho * b ** (1 - rho))) / (rho - 1)
    if term.divergence == "forward_kl":
        summands = p * torch.log(p / q)
    elif term.divergence == "reverse_kl":
        summands = q * torch.log(q / p)
    else:
        beta = term.parameter
        m = beta * p + (1 - beta) * q
        summands = beta * p * torch.log(p / m) + (1 - beta) * q * torch.log(q / m)
    if term.clip is not None:
        summands = torch.where(summands > term.clip, torch.full_like(summands, term.clip), summands)
    return summands.sum()


def token_loss(
    term: ReferenceTerm,
    student_logits: Tensor,
    target_logits: Tensor,
    label: int,
    advantage: float,
    old_log_prob: float | None,
) -> Tensor:
    q = probabilities(student_logits, term.temperature)
    if term.kind == "cross_entropy":
        return -torch.log(q[label])
    if term.kind == "policy_gradient":
        log_q = torch.log(q[label])
        ratio = torch.exp(log_q - (log_q.detach() if old_log_prob is None else old_log_prob))
        inside = torch.clamp(ratio, 1 - term.clip_low, 1 + term.clip_high)
        return -torch.minimum(ratio * advantage, inside * advantage)
    p = probabilities(target_logits.detach(), term.temperature)
    return divergence(*supported(p, q, term), term)


def loss(
    term: ReferenceTerm,
    student_logits: Tensor,
    target_logits: Tensor,
    ids: Tensor,
    sequence: Tensor,
    mask: Tensor,
    advantage: Tensor,
    old_log_probs: Tensor | None,
    max_new_tokens: int,
) -> Tensor:
    """The term over a whole batch, coefficient included."""
    per_sequence: dict[int, list[Tensor]] = {}
    for t in range(len(ids)):
        if not bool(mask[t]):
            continue
        old = None if old_log_probs is None else float(old_log_probs[t])
        value = token_loss(term, student_logits[t], target_logits[t], int(ids[t]), float(advantage[t]), old)
        per_sequence.setdefault(int(sequence[t]), []).append(value)
    if not per_sequence:
        return student_logits.sum() * 0
    sums = [torch.stack(values).sum() for values in per_sequence.values()]
    lengths = [len(values) for values in per_sequence.values()]
    if term.reduction == "token_mean":
        reduced = torch.stack(sums).sum() / sum(lengths)
    elif term.reduction == "sequence_mean":
        reduced = torch.stack([total / n for total, n in zip(sums, lengths, strict=True)]).mean()
    else:
        reduced = torch.stack(sums).sum() / (len(sums) * max_new_tokens)
    return term.coefficient * reduced
