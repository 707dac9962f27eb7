"""How many problems or seeds a comparison needs (Miller 2024, arXiv:2411.00640, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from evaluation.statistics.intervals import CONFIDENCE

POWER = 0.8


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of a paired difference of two methods, in squared shares of 1.

    difference(seed, problem) = delta + seed effect + problem effect + rest; the mean over S seeds and P problems has
    the variance seeds/S + problems/P + rest/(S·P).
    """

    seeds: float
    problems: float
    rest: float

    def variance(self, seeds: int, problems: int) -> float:
        """Of the mean difference over so many seeds and problems."""
        return self.seeds / seeds + self.problems / problems + self.rest / (seeds * problems)


def spread_of(differences: ArrayLike) -> Spread:
    """Variance components of paired differences [seeds, problems] (no NaN), by two-way analysis of variance.

    Components that come out negative are 0. With one seed all of the spread over problems counts as theirs and nothing
    is known of seeds (0). Raises ValueError below two problems.
    """
    table = np.atleast_2d(np.asarray(differences, float))
    seeds, problems = table.shape
    if problems < 2 or np.isnan(table).any():
        raise ValueError("the spread needs at least two problems that all seeds were scored on")
    by_problem = table.mean(0)
    if seeds == 1:
        return Spread(0.0, float(by_problem.var(ddof=1)), 0.0)
    by_seed = table.mean(1)
    rest_table = table - by_problem - by_seed[:, None] + table.mean()
    rest = float((rest_table**2).sum() / ((seeds - 1) * (problems - 1)))
    return Spread(
        max(0.0, float(by_seed.var(ddof=1)) - rest / problems),
        max(0.0, float(by_problem.var(ddof=1)) - rest / seeds),
        rest,
    )


def detectable(
    spread: Spread, seeds: int, problems: int, *, power: float = POWER, level: float = 1 - CONFIDENCE
) -> float:
    """The smallest true difference that a two-sided test at ``level`` finds with probability ``power``:

    (z(1 - level/2) + z(power)) · sqrt(variance of the mean difference).
    """
    return _factor(power, level) * sqrt(spread.variance(seeds, problems))


def problems_needed(
    spread: Spread, delta: float, seeds: int, *, power: float = POWER, level: float = 1 - CONFIDENCE
) -> int | None:
    """Problems with which ``seeds`` seeds see a difference of ``delta``; None where no number of problems is enough."""
    allowed = (delta / _factor(power, level)) ** 2 - spread.seeds / seeds
    needed = spread.problems + spread.rest / seeds
    return None if allowed <= 0 else max(1, ceil(needed / allowed))


def seeds_needed(
    spread: Spread, delta: float, problems: int, *, power: float = POWER, level: float = 1 - CONFIDENCE
) -> int | None:
    """Seeds with which ``problems`` problems see a difference of ``delta``; None where no number of seeds is enough."""
    allowed = (delta / _factor(power, level)) ** 2 - spread.problems / problems
    needed = spread.seeds + spread.rest / problems
    return None if allowed <= 0 else max(1, ceil(needed / allowed))


def _factor(power: float, level: float) -> float:
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power:g} and {level:g}")
    return NormalDist().inv_cdf(1 - level / 2) + NormalDist().inv_cdf(power)
