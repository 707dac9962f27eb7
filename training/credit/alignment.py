"""How alike a rollout and its reference are, as token ids (SDS, the anchor's strength)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

Similarity = Literal["token_f1", "rouge_l", "edit_distance", "exact_match"]
Ids = Sequence[int]


def token_f1(rollout: Ids, reference: Ids) -> float:
    """F1 of the multisets of ids: overlap o, precision o/|rollout|, recall o/|reference|."""
    return _f1(sum((Counter(rollout) & Counter(reference)).values()), rollout, reference)


def rouge_l(rollout: Ids, reference: Ids) -> float:
    """F1 of the longest common subsequence."""
    best = np.zeros(len(reference) + 1, dtype=np.int64)
    other = np.asarray(reference, dtype=np.int64)
    for token in rollout:
        longer = np.maximum(best[1:], best[:-1] + (other == token))
        best[1:] = np.maximum.accumulate(longer) if len(longer) else longer
    return _f1(int(best[-1]), rollout, reference)


def edit_distance(rollout: Ids, reference: Ids) -> float:
    """1 − Levenshtein distance / length of the longer."""
    longest = max(len(rollout), len(reference))
    if longest == 0:
        return 1.0
    other = np.asarray(reference, dtype=np.int64)
    places = np.arange(len(reference) + 1)
    costs = places.copy()
    for row, token in enumerate(rollout, start=1):
        reached = np.empty_like(costs)
        reached[0] = row
        reached[1:] = np.minimum(costs[1:] + 1, costs[:-1] + (other != token))
        # An insertion costs 1 a place: the cheapest way to place j is min over k ≤ j of reached[k] + (j − k).
        costs = np.minimum.accumulate(reached - places) + places
    return 1.0 - float(costs[-1]) / longest


def exact_match(rollout: Ids, reference: Ids) -> float:
    """1 iff the ids are the same."""
    return float(list(rollout) == list(reference))


SIMILARITIES: dict[Similarity, Callable[[Ids, Ids], float]] = {
    "token_f1": token_f1,
    "rouge_l": rouge_l,
    "edit_distance": edit_distance,
    "exact_match": exact_match,
}


def compared_ids(
    rollout: Ids, reference: Ids, special: frozenset[int], end_of_thinking: int | None
) -> tuple[list[int], list[int]]:
    """What is compared: ids without ``special`` ones, and without the thinking block that only one of them has.

    The block is everything up to the last ``end_of_thinking``.
    """
    if end_of_thinking is not None and (end_of_thinking in rollout) != (end_of_thinking in reference):
        rollout, reference = _after(rollout, end_of_thinking), _after(reference, end_of_thinking)
    return [i for i in rollout if i not in special], [i for i in reference if i not in special]


def _after(ids: Ids, mark: int) -> Ids:
    return ids[len(ids) - list(reversed(ids)).index(mark) :] if mark in ids else ids


def _f1(overlap: int, rollout: Ids, reference: Ids) -> float:
    if not len(rollout) and not len(reference):
        return 1.0
    return 2 * overlap / (len(rollout) + len(reference))
