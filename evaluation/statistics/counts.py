"""What a problem's answers say: pass@k, pass^k and the vote of all answers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb


def check_counts(n: int, c: int, k: int) -> None:
    """Raise ValueError for counts that no evaluation can have."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if not 0 <= c <= n:
        raise ValueError(f"{c} passed answers of {n} scored ones cannot be")


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Probability that k of a problem's n scored answers, c of them right, hold a right one: 1 - C(n-c,k)/C(n,k).

    None when n < k: it cannot be known. ValueError for k < 1 or c outside 0..n.
    """
    check_counts(n, c, k)
    return None if n < k else 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Probability that k of n answers are all right: C(c,k)/C(n,k). None and errors as in ``pass_at_k``."""
    check_counts(n, c, k)
    return None if n < k else comb(c, k) / comb(n, k)


def majority(passed: int, others: Sequence[int], silent: int = 0) -> float | None:
    """Probability that the answer given most often is right, where ties are broken at random.

    ``passed`` counts the right answers, which are one answer however written; ``others`` counts each wrong answer;
    ``silent`` counts the scored answers from which nothing could be read: they do not vote. Where nobody votes nothing
    is answered: 0. None without any answer.

    Equation: [c = m] / #{answers given m times}, with m the largest count (Wang et al. 2022, arXiv:2203.11171).
    """
    _check_votes(passed, others, silent)
    votes = [*([passed] if passed else []), *others]
    if not votes:
        return 0.0 if silent else None
    most = max(votes)
    return (passed == most) / votes.count(most)


@lru_cache(maxsize=4096)
def majority_at_k(passed: int, others: tuple[int, ...], silent: int, k: int) -> float | None:
    """maj@k: the mean of ``majority`` over all sets of k of a problem's n answers. None when n < k.

    Equation: sum over the number j of right votes and t of wrong answers tied with them of
    C(c, j) · W(j, t) / (t + 1), over C(n, k), where W(j, t) counts the sets of k - j other answers in which no wrong
    answer has more than j votes and t of them have j. Exact: computed in integers.
    """
    _check_votes(passed, others, silent)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    n = passed + sum(others) + silent
    if n < k:
        return None
    total = Fraction(0)
    for right in range(1, min(passed, k) + 1):
        for ties, ways in _others_below(others, silent, right, k - right).items():
            total += Fraction(comb(passed, right) * ways, ties + 1)
    return float(total / comb(n, k))


def _others_below(others: Sequence[int], silent: int, most: int, drawn: int) -> dict[int, int]:
    """Ways to draw ``drawn`` answers that are not right with at most ``most`` of each, by how many have ``most``."""
    ways = {(0, 0): 1}
    for count in others:
        following: dict[tuple[int, int], int] = {}
        for (so_far, ties), number in ways.items():
            for more in range(min(count, most, drawn - so_far) + 1):
                place = (so_far + more, ties + (more == most))
                following[place] = following.get(place, 0) + number * comb(count, more)
        ways = following
    found: dict[int, int] = {}
    for (so_far, ties), number in ways.items():
        found[ties] = found.get(ties, 0) + number * comb(silent, drawn - so_far)
    return found


def _check_votes(passed: int, others: Sequence[int], silent: int) -> None:
    if passed < 0 or silent < 0 or any(count < 1 for count in others):
        raise ValueError(
            f"counts of answers must be positive, got {passed} right, {list(others)} wrong, {silent} without an answer"
        )
