"""Estimates, intervals and paired tests for evaluations (numpy only).

The unit is the problem (or the cluster of problems that share a passage or template), never the single answer.
An answer that was not scored counts neither as right nor as wrong: it is left out and counted apart. A problem none
of whose answers was scored is NaN here, and every function says what it does with NaN.

Sources: pass@k and its unbiased estimator, arXiv:2107.03374; clustered errors and paired differences,
arXiv:2411.00640; bootstrap over two crossed factors, arXiv:0711.2173 (Owen's pigeonhole bootstrap); Holm 1979.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
RESAMPLES = 10_000
BOOTSTRAP_SEED = 20_250_101
"""Bootstraps are deterministic: the same rows give the same interval."""
EXACT_BELOW_UNITS = 20
"""With fewer units than this a sign-flip test enumerates all 2^n cases instead of resampling."""
MOST_ENUMERATED = 22
"""Most units whose sign patterns fit in memory."""
FEWEST_SEEDS = 3
"""Below this no interval over seeds is given: show the dots."""
KEPT_BYTES = 1 << 25
"""Draws of up to this size are kept, for a table asks for the same again; larger ones are drawn anew each time."""
_CHUNK = 500
"""Resamples done at once: bounds memory."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


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


# --- estimates of one evaluation -------------------------------------------------------------------------------------


def _check_counts(n: int, c: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if not 0 <= c <= n:
        raise ValueError(f"{c} passed answers of {n} scored ones cannot be")


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Probability that k of a problem's n scored answers, c of them right, hold a right one: 1 - C(n-c,k)/C(n,k).

    None when n < k: it cannot be known. ValueError for k < 1 or c outside 0..n.
    """
    _check_counts(n, c, k)
    return None if n < k else 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Probability that k of n answers are all right: C(c,k)/C(n,k). None and errors as in ``pass_at_k``."""
    _check_counts(n, c, k)
    return None if n < k else comb(c, k) / comb(n, k)


# --- errors and intervals --------------------------------------------------------------------------------------------


def standard_error(values: ArrayLike, clusters: Sequence[Hashable] | None = None) -> float | None:
    """Standard error of the mean of ``values`` over problems; NaN values are left out. None below two units.

    Clustered: sqrt(sum over clusters of (sum of deviations)^2 * C/(C-1)) / n, which is the usual s/sqrt(n) when every
    problem is a cluster of its own.
    """
    sums, counts = _cluster_sums(np.asarray(values, float)[None], clusters)
    total, n = sums.sum(), counts.sum()
    units = sums.shape[1]
    if units < 2:
        return None
    deviations = sums[0] - counts[0] * total / n
    return float(sqrt((deviations**2).sum() * units / (units - 1)) / n)


def wilson_interval(passed: int, total: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval of a share; good for few problems and near 0 and 1. None for no problems."""
    _check_counts(total, passed, 1)
    if total == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, scale = passed / total, 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    return Interval(0.0 if passed == 0 else centre - half, 1.0 if passed == total else centre + half)


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


# --- resampling ------------------------------------------------------------------------------------------------------


def _cluster_sums(values: Floats, clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
    """[seeds, problems] with NaN -> sums and counts [seeds, clusters]; clusters without any value are dropped."""
    known = ~np.isnan(values)
    if clusters is None:
        index = np.arange(values.shape[1])
    else:
        if len(clusters) != values.shape[1]:
            raise ValueError(f"{len(clusters)} clusters for {values.shape[1]} problems")
        names = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
        index = np.array([names[name] for name in clusters], int)
    size = int(index.max()) + 1 if len(index) else 0
    sums, counts = np.zeros((len(values), size)), np.zeros((len(values), size))
    for seed in range(len(values)):
        sums[seed] = np.bincount(index, np.where(known[seed], values[seed], 0.0), size)
        counts[seed] = np.bincount(index, known[seed], size)
    kept = counts.sum(0) > 0
    return sums[:, kept], counts[:, kept]


def mean_over_seeds(values: ArrayLike) -> float | None:
    """Mean over seeds of the mean over problems of [seeds, problems]; NaN left out, None if a seed has no value."""
    table = np.atleast_2d(np.asarray(values, float))
    known = (~np.isnan(table)).sum(1)
    return float((np.nansum(table, 1) / known).mean()) if len(known) and known.all() else None


def bootstrap_means(
    values: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    resample_seeds: bool,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Floats:
    """Bootstrap distribution [resamples] of ``mean_over_seeds`` of [seeds, problems].

    Every resample draws problems (clusters) with replacement, the same for all seeds because all seeds answered the
    same problems, and, with ``resample_seeds``, seeds with replacement as well. A resample in which some drawn seed
    has no scored problem is NaN (it needs almost everything to be unscored).
    """
    sums, counts = _cluster_sums(np.atleast_2d(np.asarray(values, float)), clusters)
    seeds, units = sums.shape
    if units == 0:
        raise ValueError("nothing to resample: no problem has a score")
    drawn_seeds = _draws(resamples, seeds, seed + 1) if resample_seeds else repeat(np.ones((1, seeds)))
    means = []
    for units_drawn, weights in zip(_unit_draws(resamples, units, seed), drawn_seeds, strict=False):
        drawn = units_drawn.astype(float)
        with np.errstate(invalid="ignore"):
            per_seed = (drawn @ sums.T) / (drawn @ counts.T)
        means.append(np.where(weights > 0, per_seed * weights, 0.0).sum(1) / seeds)
    return np.concatenate(means)


def _draws(resamples: int, units: int, seed: int) -> Iterator[NDArray[np.unsignedinteger]]:
    """How often each unit is drawn, with replacement: [resamples, units], in pieces of up to _CHUNK resamples."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _CHUNK):
        rows = min(_CHUNK, resamples - start)
        drawn = rng.integers(0, units, (rows, units)) + np.arange(rows)[:, None] * units
        counts = np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
        yield counts.astype(np.min_scalar_type(units))


def _unit_draws(resamples: int, units: int, seed: int) -> Iterable[NDArray[np.unsignedinteger]]:
    """``_draws``, out of memory where they fit into KEPT_BYTES."""
    size = resamples * units * np.min_scalar_type(units).itemsize
    return _kept_draws(resamples, units, seed) if size <= KEPT_BYTES else _draws(resamples, units, seed)


@lru_cache(maxsize=2)
def _kept_draws(resamples: int, units: int, seed: int) -> tuple[NDArray[np.unsignedinteger], ...]:
    return tuple(_draws(resamples, units, seed))


def seed_interval(
    values: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Percentile interval of the mean of [seeds, problems], seeds and problems resampled; None below FEWEST_SEEDS.

    Where ``unanimous_interval`` has one, it is that one: all resamples would be equal.
    """
    table = np.atleast_2d(np.asarray(values, float))
    if len(table) < FEWEST_SEEDS or mean_over_seeds(table) is None:
        return None
    unanimous = unanimous_interval(table, clusters, confidence=confidence)
    return unanimous or _percentiles(
        bootstrap_means(table, clusters, resample_seeds=True, resamples=resamples), confidence
    )


def unanimous_interval(
    values: ArrayLike, clusters: Sequence[Hashable] | None = None, *, confidence: float = CONFIDENCE
) -> Interval | None:
    """Wilson's interval over problems (clusters) if all known values of [seeds, problems] are 0 or all are 1.

    None if they are not, or if there is none. Seeds count no further: they answered the same problems.
    """
    table = np.atleast_2d(np.asarray(values, float))
    known = table[~np.isnan(table)]
    if not len(known) or not ((known == 0).all() or (known == 1).all()):
        return None
    units = _cluster_sums(table, clusters)[0].shape[1]
    return wilson_interval(units if known[0] else 0, units, confidence)


def _percentiles(means: Floats, confidence: float) -> Interval:
    low, high = np.nanquantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(float(low), float(high))


# --- comparing two methods -------------------------------------------------------------------------------------------


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
    sums, counts = _cluster_sums(table, clusters)
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
        return PairedTest(difference, _percentiles(means, confidence), p_value, units, rule)
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
