"""The loss written from the equations, in float64, one token at a time; it imports nothing of the product.

p is the target, q the student, r the reference of a mixture. Gradients come from autograd through these plain formulas;
what has no gradient is detached by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

TAIL_FLOOR = -math.expm1(-1e-7)

ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda w: torch.log(w),
    "k2": lambda w: torch.log(w) ** 2 / 2,
    "k3": lambda w: 1 / w - 1 + torch.log(w),
    "urkl": lambda w: torch.log(w) ** 2 / 2,
    "ufkl": lambda w: 1 / w + torch.log(w),
    "rkl": lambda w: (torch.log(w) + 1) ** 2 / 2,
    "fkl": lambda w: 1 / w,
}


@dataclass(frozen=True)
class ReferenceTerm:
    """One term, spelled out.

    ``kind`` is distill, sampled_kl, policy_gradient, cross_entropy, preference or entropy.
    """

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
    dual_clip: float | None = None
    mix: str | None = None
    """geometric, toward_all or toward_picked."""
    share: float = 0.9
    mix_first: bool = False
    token_clip: float | None = None
    usd: str | None = None
    """soft or hard."""
    price: float = 0.4
    sharpness: float = 0.3
    usd_of_clipped: bool = False
    importance: str | None = None
    """detached or gradient."""
    importance_clip: float | None = 1.3
    sampler_clip: float | None = None
    estimator: str = "k3"
    own_labels: bool = False
    normalise: str = "weights"


def brief(term: ReferenceTerm) -> str:
    """The kind and every value that is not a default, for the names of tests."""
    changed = [f"{f.name}={v}" for f in fields(term) if f.name != "kind" and (v := getattr(term, f.name)) != f.default]
    return ",".join([term.kind, *changed])


@dataclass(frozen=True)
class ReferenceTokens:
    """What the tokens of a batch carry; every tensor [N]."""

    ids: Tensor
    sequence: Tensor
    mask: Tensor
    weight: Tensor
    advantage: Tensor
    slope: Tensor
    labels: Tensor
    picked: Tensor
    sampler: Tensor
    old: Tensor | None
    max_new_tokens: int


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    scaled = logits.double() / temperature
    weights = torch.exp(scaled - scaled.max().detach())
    return weights / weights.sum()


def blend(p: Tensor, r: Tensor, share: float) -> Tensor:
    powers = p**share * r ** (1 - share)
    return powers / powers.sum()


def coarse(p: Tensor, chosen: list[int], rest: str) -> Tensor:
    top = p[chosen]
    if rest == "renormalise":
        return top / top.sum()
    return torch.cat([top, torch.clamp(1 - top.sum(), min=TAIL_FLOOR)[None]])


def sides(p: Tensor, q: Tensor, r: Tensor, picked: bool, term: ReferenceTerm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(target, student) on the support, and (target, student) that the difficulty looks at."""
    first = term.mix == "geometric" and (term.mix_first or term.top_k is None or term.top_k >= len(p))
    if first:
        p = blend(p, r, term.share)
    elif term.mix == "toward_all" or (term.mix == "toward_picked" and picked):
        p = blend(p, q.detach(), 1 - term.share)
    if term.top_k is None or term.top_k >= len(p):
        return p, q, p, q
    ranked = sorted(range(len(p)), key=lambda v: -(p if term.top_of == "target" else q)[v].item())
    chosen = ranked[: term.top_k]
    p_top, q_top = coarse(p, chosen, term.rest), coarse(q, chosen, term.rest)
    if term.mix == "geometric" and not first:
        p_top = blend(p_top, coarse(r, chosen, term.rest), term.share)
        return p_top, q_top, p_top[: term.top_k], q_top[: term.top_k]
    return p_top, q_top, p, q


def divergence(p: Tensor, q: Tensor, term: ReferenceTerm, clip: float | None) -> Tensor:
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
    if clip is not None:
        summands = torch.where(summands > clip, torch.full_like(summands, clip), summands)
    return summands.sum()


def distill(term: ReferenceTerm, q: Tensor, p: Tensor, r: Tensor, picked: bool) -> tuple[Tensor, Tensor]:
    """(loss, USD's weight) of one token."""
    target, student, whole_p, whole_q = sides(p, q, r, picked, term)
    value = divergence(target, student, term, term.clip)
    if term.token_clip is not None and value > term.token_clip:
        value = torch.full_like(value, term.token_clip)
    if term.usd is None:
        return value, torch.ones_like(value)
    best = int(whole_p.argmax())
    hard = torch.relu(torch.log(whole_p[best]) - torch.log(whole_q[best]))
    gain = (value if term.usd_of_clipped else divergence(target, student, term, None)) - term.price * hard
    weight = torch.sigmoid(gain / term.sharpness) if term.usd == "soft" else (gain > 0).double()
    return value, weight.detach()


def surrogate(term: ReferenceTerm, ratio: Tensor, advantage: float) -> Tensor:
    inside = torch.clamp(ratio, 1 - term.clip_low, 1 + term.clip_high)
    value = -torch.minimum(ratio * advantage, inside * advantage)
    if term.dual_clip is not None and advantage < 0:
        value = torch.minimum(value, torch.full_like(value, -term.dual_clip * advantage))
    return value


def token_loss(
    term: ReferenceTerm, logits: tuple[Tensor, Tensor, Tensor], data: ReferenceTokens, t: int
) -> tuple[Tensor, Tensor]:
    """(loss with its ratios, weight) of token ``t``; ``logits`` of student, target and reference."""
    q = probabilities(logits[0], term.temperature)
    p, r = (probabilities(side.detach(), term.temperature) for side in logits[1:])
    log_q = torch.log(q[int(data.ids[t])])
    old = log_q.detach() if data.old is None else data.old[t].double()
    given = data.weight[t].double()
    if term.kind == "entropy":
        return (q * torch.log(q)).sum(), given
    if term.kind == "cross_entropy":
        return -torch.log(q[int((data.labels if term.own_labels else data.ids)[t])]), given
    if term.kind == "preference":
        return data.slope[t].double() * log_q, given
    ratio = torch.exp(log_q - old)
    if term.kind == "policy_gradient":
        value, weight = surrogate(term, ratio, float(data.advantage[t])), given
    elif term.kind == "sampled_kl":
        value, weight = ESTIMATORS[term.estimator](q[int(data.ids[t])] / p[int(data.ids[t])]), given
    else:
        value, usd = distill(term, q, p, r, bool(data.picked[t]))
        weight = given * usd
    if term.importance is not None:
        clipped = ratio if term.importance_clip is None else torch.clamp(ratio, max=term.importance_clip)
        value = value * (clipped if term.importance == "gradient" else clipped.detach())
    if term.sampler_clip is not None:
        value = value * torch.clamp(torch.exp(old - data.sampler[t].double()), max=term.sampler_clip)
    return value, weight


def loss(
    term: ReferenceTerm,
    student_logits: Tensor,
    target_logits: Tensor,
    reference_logits: Tensor,
    data: ReferenceTokens,
) -> Tensor:
    """The term over a whole batch, coefficient included."""
    nothing = student_logits.sum() * 0
    rows: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for t in range(len(data.ids)):
        if bool(data.mask[t]):
            logits = (student_logits[t], target_logits[t], reference_logits[t])
            rows.setdefault(int(data.sequence[t]), []).append(token_loss(term, logits, data, t))
    sums = [torch.stack([w * v for v, w in row]).sum() for row in rows.values()]
    if term.kind == "preference":
        return term.coefficient * torch.stack(sums).sum()
    by_weight = term.normalise == "weights"
    counts = [sum(float(w) if by_weight else 1.0 for _, w in row) for row in rows.values()]
    used = [(total, count) for total, count in zip(sums, counts, strict=True) if count > 0]
    if not used:
        return nothing
    if term.reduction == "token_mean":
        reduced = torch.stack([total for total, _ in used]).sum() / sum(count for _, count in used)
    elif term.reduction == "sequence_mean":
        reduced = torch.stack([total / count for total, count in used]).mean()
    else:
        reduced = torch.stack([total for total, _ in used]).sum() / (len(used) * data.max_new_tokens)
    return term.coefficient * reduced + nothing
