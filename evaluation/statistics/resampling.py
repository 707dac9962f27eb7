"""Bootstrap over seeds and problems."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.statistics.clusters import Floats, cluster_sums, mean_over_seeds
from evaluation.statistics.intervals import CONFIDENCE, FEWEST_SEEDS, Interval, wilson_interval

RESAMPLES = 10_000
BOOTSTRAP_SEED = 20_250_101
"""Bootstraps are deterministic: the same rows give the same interval."""
KEPT_BYTES = 1 << 25
"""Draws of up to this size are kept, for a table asks for the same again; larger ones are drawn anew each time."""
_CHUNK = 500
"""Resamples done at once: bounds memory."""


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
    sums, counts = cluster_sums(np.atleast_2d(np.asarray(values, float)), clusters)
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
    return unanimous or percentiles(
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
    units = cluster_sums(table, clusters)[0].shape[1]
    return wilson_interval(units if known[0] else 0, units, confidence)


def percentiles(means: Floats, confidence: float) -> Interval:
    """Percentile interval of a bootstrap distribution; NaN left out."""
    low, high = np.nanquantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(float(low), float(high))
