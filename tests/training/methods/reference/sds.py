"""SDS: distillation on rollouts plus cross-entropy on references, as strong as the rollout is far from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.methods.reference.divergences import divergence
from tests.training.methods.reference.imitation import shifted_labels
from tests.training.methods.reference.rows import Row, sequence_mean


def _f1(overlap: int, drawn: int, wanted: int) -> float:
    if overlap == 0:
        return 0.0
    precision, recall = overlap / drawn, overlap / wanted
    return 2 * precision * recall / (precision + recall)


def token_f1(drawn: Sequence[int], wanted: Sequence[int]) -> float:
    """F1 of two multisets of ids."""
    shared = sum((Counter(drawn) & Counter(wanted)).values())
    return _f1(shared, len(drawn), len(wanted))


def rouge_l(drawn: Sequence[int], wanted: Sequence[int]) -> float:
    """F1 of the longest common subsequence, by its recursion."""
    table = [[0] * (len(wanted) + 1) for _ in range(len(drawn) + 1)]
    for i, a in enumerate(drawn, 1):
        for j, b in enumerate(wanted, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if a == b else max(table[i - 1][j], table[i][j - 1])
    return _f1(table[-1][-1], len(drawn), len(wanted))


def edit_similarity(drawn: Sequence[int], wanted: Sequence[int]) -> float:
    """1 − Levenshtein distance over the longer length."""
    longest = max(len(drawn), len(wanted))
    if longest == 0:
        return 1.0
    cost = {(i, 0): i for i in range(len(drawn) + 1)} | {(0, j): j for j in range(len(wanted) + 1)}
    for i in range(1, len(drawn) + 1):
        for j in range(1, len(wanted) + 1):
            changed = cost[i - 1, j - 1] + (drawn[i - 1] != wanted[j - 1])
            cost[i, j] = min(cost[i - 1, j] + 1, cost[i, j - 1] + 1, changed)
    return 1 - cost[len(drawn), len(wanted)] / longest


def exact_match(drawn: Sequence[int], wanted: Sequence[int]) -> float:
    return float(list(drawn) == list(wanted))


SIMILARITIES = {
    "token_f1": token_f1,
    "rouge_l": rouge_l,
    "edit_distance": edit_similarity,
    "exact_match": exact_match,
}


def anchor_weights(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    similarity: str = "token_f1",
    granularity: str = "sample",
    end: int | None = None,
) -> list[float]:
    """w_i = 1 − sim(ŷ_i, y*_i), the end token left out; ``batch`` gives all rows their mean."""

    def text(ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token != end]

    weights = [1 - SIMILARITIES[similarity](text(drawn), text(wanted)) for drawn, wanted in pairs]
    if granularity == "batch":
        return [sum(weights) / len(weights)] * len(weights)
    return weights


def sds(
    rollouts: Sequence[Row],
    references: Sequence[Row],
    weights: Sequence[float],
    *,
    alpha: float = 0.2,
    kind: str = "jsd",
    parameter: float = 0.5,
    entry_clip: float | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """mean_i(L_d,i + α·w_i·L_a,i): row i of both lists is the same problem; the prefixes never mix."""
    distilled = []
    for row in rollouts:
        target, student = row.log_probs("teacher", temperature).detach(), row.log_probs("student", temperature)
        distilled.append(divergence(kind, target, student, parameter=parameter, entry_clip=entry_clip))
    anchors = [-row.log_prob("student").mean() for row in references]
    anchor = torch.stack([w * a for w, a in zip(weights, anchors, strict=True)]).mean()
    return sequence_mean(rollouts, distilled) + alpha * anchor


def mixed_context_anchor(rollouts: Sequence[Row]) -> Tensor:
    """The control that fails: reference labels asked for behind the rollout's own prefix, mean of row means."""
    return sequence_mean(rollouts, shifted_labels(rollouts))
