"""Standard errors and closed-form intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from evaluation.statistics.clusters import cluster_sums
from evaluation.statistics.counts import check_counts

CONFIDENCE = 0.95
FEWEST_SEEDS = 3
"""Below this no interval over seeds is given: show the dots."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


def standard_error(values: ArrayLike, clusters: Sequence[Hashable] | None = None) -> float | None:
    """Standard error of the mean of ``values`` over problems; NaN values are left out. None below two units.

    Clustered: sqrt(sum over clusters of (sum of deviations)^2 * C/(C-1)) / n, which is the usual s/sqrt(n) when every
    problem is a cluster of its own.
    """
    sums, counts = cluster_sums(np.asarray(values, float)[None], clusters)
    total, n = sums.sum(), counts.sum()
    units = sums.shape[1]
    if units < 2:
        return None
    deviations = sums[0] - counts[0] * total / n
    return float(sqrt((deviations**2).sum() * units / (units - 1)) / n)


def wilson_interval(passed: int, total: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval of a share; good for few problems and near 0 and 1. None for no problems."""
    check_counts(total, passed, 1)
    if total == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, scale = passed / total, 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    return Interval(0.0 if passed == 0 else centre - half, 1.0 if passed == total else centre + half)


def problem_interval(
    values: ArrayLike, clusters: Sequence[Hashable] | None = None, *, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of the mean over problems of one evaluation; NaN left out. It says nothing of other seeds.

    One answer a problem (all values 0 or 1) without shared clusters: Wilson's. Else mean ± t·(clustered standard
    error) with C-1 degrees of freedom, cut to [0, 1]: a normal quantile is too short for 30 problems. All values equal
    0 or 1: Wilson's over the clusters. None below two units.
    """
    table = np.asarray(values, float)
    known = table[~np.isnan(table)]
    sums, counts = cluster_sums(table[None], clusters)
    units, binary = sums.shape[1], bool(((known == 0) | (known == 1)).all())
    if units < 2:
        return None
    if binary and (units == len(known) or known.min() == known.max()):
        return wilson_interval(round(units * known.mean()), units, confidence)
    error, mean = standard_error(table, clusters), float(sums.sum() / counts.sum())
    assert error is not None
    half = t_quantile(0.5 + confidence / 2, units - 1) * error
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval for the mean over seeds, n-1 degrees of freedom; None below FEWEST_SEEDS."""
    seeds = np.asarray(values, float)
    if len(seeds) < FEWEST_SEEDS:
        return None
    half = t_quantile(0.5 + confidence / 2, len(seeds) - 1) * seeds.std(ddof=1) / sqrt(len(seeds))
    return Interval(float(seeds.mean() - half), float(seeds.mean() + half))


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t for integer degrees of freedom, by bisection of its closed-form distribution."""
    if not 0.5 <= probability < 1 or degrees < 1:
        raise ValueError(f"t quantile needs 0.5 <= probability < 1 and degrees >= 1, got {probability}, {degrees}")
    low, high = 0.0, 1.0
    while _t_distribution(high, degrees) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _t_distribution(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0: the finite series for integer degrees (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = np.arctan(t / sqrt(degrees))
    cosine, sine = np.cos(angle), np.sin(angle)
    if degrees % 2:
        term, total = cosine, cosine if degrees > 1 else 0.0
        for i in range(3, degrees - 1, 2):
            term *= cosine * cosine * (i - 1) / i
            total += term
        return float(0.5 + (angle + sine * total) / np.pi)
    term, total = 1.0, 1.0
    for i in range(2, degrees - 1, 2):
        term *= cosine * cosine * (i - 1) / i
        total += term
    return float(0.5 + sine * total / 2)
