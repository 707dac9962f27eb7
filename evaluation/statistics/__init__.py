"""Estimates, intervals and paired tests for evaluations (numpy only).

The unit is the problem (or the cluster of problems that share a passage or template), never the single answer.
An answer that was not scored counts neither as right nor as wrong: it is left out and counted apart. A problem none
of whose answers was scored is NaN here, and every function says what it does with NaN.

Sources: pass@k and its unbiased estimator, arXiv:2107.03374; clustered errors and paired differences,
arXiv:2411.00640; bootstrap over two crossed factors, arXiv:0711.2173 (Owen's pigeonhole bootstrap); Holm 1979.
"""

from evaluation.statistics.clusters import mean_over_seeds
from evaluation.statistics.comparisons import (
    EXACT_BELOW_UNITS,
    MOST_ENUMERATED,
    PairedTest,
    holm,
    paired_test,
    sign_flip_p_value,
)
from evaluation.statistics.counts import majority, majority_at_k, pass_at_k, pass_hat_k
from evaluation.statistics.intervals import (
    CONFIDENCE,
    FEWEST_SEEDS,
    Interval,
    problem_interval,
    standard_error,
    t_interval,
    t_quantile,
    wilson_interval,
)
from evaluation.statistics.power import POWER, Spread, detectable, problems_needed, seeds_needed, spread_of
from evaluation.statistics.resampling import (
    BOOTSTRAP_SEED,
    RESAMPLES,
    bootstrap_means,
    seed_interval,
    unanimous_interval,
)

__all__ = [
    "BOOTSTRAP_SEED", "CONFIDENCE", "EXACT_BELOW_UNITS", "FEWEST_SEEDS", "MOST_ENUMERATED", "POWER", "RESAMPLES",
    "Interval", "PairedTest", "Spread", "bootstrap_means", "detectable", "holm", "majority", "majority_at_k",
    "mean_over_seeds", "paired_test", "pass_at_k", "pass_hat_k", "problem_interval", "problems_needed",
    "seed_interval", "seeds_needed", "sign_flip_p_value", "spread_of", "standard_error", "t_interval", "t_quantile",
    "unanimous_interval", "wilson_interval",
]  # fmt: skip
