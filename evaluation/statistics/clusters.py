"""Sums over clusters of problems: the unit that intervals and tests resample."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def cluster_sums(values: Floats, clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
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
