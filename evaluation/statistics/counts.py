"""What a problem's answers say: pass@k, pass^k and the vote of all answers."""

from __future__ import annotations

from collections.abc import Sequence
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


def majority(passed: int, others: Sequence[int]) -> float | None:
    """Probability that the answer given most often is right, where ties are broken at random.

    ``passed`` counts the right answers, which are one answer however written; ``others`` counts each wrong answer.
    Answers from which nothing could be read do not vote. None where nobody votes.

    Equation: [c = m] / #{answers given m times}, with m the largest count (Wang et al. 2022, arXiv:2203.11171).
    """
    if passed < 0 or any(count < 1 for count in others):
        raise ValueError(f"counts of answers must be positive, got {passed} right and {list(others)}")
    votes = [*([passed] if passed else []), *others]
    if not votes:
        return None
    most = max(votes)
    return (passed == most) / votes.count(most)
