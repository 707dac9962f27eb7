"""Tests of one method against another on the same problems."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evaluation.statistics.clusters import cluster_sums, mean_over_seeds
from evaluation.statistics.intervals import CONFIDENCE, FEWEST_SEEDS, Interval
from evaluation.statistics.resampling import bootstrap_means, percentiles

EXACT_BELOW_UNITS = 20
"""With fewer units than this a sign-flip test enumerates all 2^n cases instead of resampling."""
MOST_ENUMERATED = 22
"""Most units whose sign patterns fit in memory."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The mean difference of two methods on the same problems, and how surprising it is if there were none."""

    difference: float
    interval: Interval | None
    p_value: float | None
    units: int
    """Problems, or clusters of problems."""
    rule: str
    """How interval and p-value were made, in words."""


def paired_test(
    differences: ArrayLike, clusters: Sequence[Hashable] | None = None, *, confidence: float = CONFIDENCE
) -> PairedTest:
    """Test of the mean of paired differences [seeds, problems] (method minus baseline; NaN where either is missing).

    From FEWEST_SEEDS seeds on, seeds and problems are resampled and an interval is given; below, problems alone are
    resampled, the result speaks of these trained models only, and no interval is given. Under EXACT_BELOW_UNITS
    problems (clusters) the p-value comes from the exact sign-flip test instead, which takes the seeds as they are. The
    bootstrap's p-value is approximate: with three seeds that lie far apart it comes out too small.
    """
    table = np.atleast_2d(np.asarray(differences, float))
    difference = mean_over_seeds(table)
    if difference is None:
        raise ValueError("a seed has no problem that both methods answered and were scored on")
    sums, counts = cluster_sums(table, clusters)
    units, several = sums.shape[1], len(table) >= FEWEST_SEEDS
    means = bootstrap_means(table, clusters, resample_seeds=several)
    scope = "seeds and problems" if several else "problems"
    if units < EXACT_BELOW_UNITS:
        per_unit = (sums / counts.sum(1, keepdims=True)).mean(0)
        p_value = sign_flip_p_value(per_unit)
        rule = f"exact sign-flip test over {units} problems or clusters; its p says nothing of other seeds"
    else:
        # Seen from no difference at all, how often is a resample as far away as what was measured?
        extreme = np.abs(means - difference) >= abs(difference) * (1 - 1e-12)
        p_value = float((1 + extreme.sum()) / (1 + len(means)))
        rule = f"paired bootstrap over {scope}, {len(means):,} resamples"
        if several:
            rule += "; p is approximate when few seeds lie far apart"
    if several:
        return PairedTest(difference, percentiles(means, confidence), p_value, units, rule)
    return PairedTest(difference, None, p_value, units, f"{rule}; no interval below {FEWEST_SEEDS} seeds")


def sign_flip_p_value(differences: ArrayLike) -> float:
    """Exact two-sided p-value of the mean of independent paired differences when each sign is as likely as the other.

    Enumerates all 2^n sign patterns and counts those whose sum is at least as far from 0 as the one observed.
    """
    units = np.asarray(differences, float)
    if len(units) == 0:
        raise ValueError("a sign-flip test needs at least one difference")
    if len(units) > MOST_ENUMERATED:
        raise ValueError(f"{len(units)} differences are too many to enumerate: use a bootstrap")
    sums = np.zeros(1)
    for value in units:
        sums = np.concatenate([sums + value, sums - value])
    observed = abs(units.sum())
    return float(np.mean(np.abs(sums) >= observed - 1e-12 * max(1.0, np.abs(units).sum())))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment for the comparisons of one table; None (not tested) stays None and counts not."""
    tested = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        adjusted[i] = highest
    return adjusted
