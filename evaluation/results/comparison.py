"""What a study's table holds, row by row, with the rules it was made by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from evaluation.results.budgets import Budget
from evaluation.statistics import BOOTSTRAP_SEED, CONFIDENCE, RESAMPLES, Interval, Spread


@dataclass(frozen=True, slots=True)
class SeedScore:
    """One run of a cell: a dot."""

    seed: int
    run_id: str
    update: int
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the plan on one benchmark."""

    benchmark: str
    label: str
    method: str
    is_control: bool
    is_baseline: bool
    axes: str
    """The cell's place on the plan's axes, as JSON text."""
    seeds: tuple[SeedScore, ...]
    n_seeds: int
    n_planned: int
    """Seeds the plan asks for; the rest is in ``Comparison.excluded``."""
    n_problems: int
    mean: float
    """Mean over seeds of the mean over problems."""
    interval: Interval | None
    """Over seeds and problems; None below three seeds."""
    is_unanimous: bool
    """Whether every scored answer is wrong, or every one right: then the interval is Wilson's over problems."""
    seed_t_interval: Interval | None
    """Student's interval over the seeds' means alone, for comparison; None below three seeds."""
    standard_error: float | None
    """Over problems (clusters), of the mean over seeds: says nothing of other seeds."""
    unscored_rate: float
    cost: dict[str, float | None]
    """Mean over seeds of the training cost at the evaluated checkpoint; keys COST_KEYS."""
    delta: float | None
    """Mean paired difference to the baseline, over seeds and the problems both were scored on."""
    delta_interval: Interval | None
    n_pairs: int
    """Seeds with a baseline run to pair with."""
    n_paired_problems: int
    p_value: float | None
    p_holm: float | None
    """Adjusted for all comparisons of the table."""
    rule: str | None
    """How interval and p-value of the delta were made, and what they leave out."""
    plan: str = ""
    is_retention: bool = False
    """Whether the benchmark is one that training must not forget, asked before and after it only."""
    spent: float | None = None
    """Mean over seeds of what was spent at the evaluated checkpoint, in the budget's unit; None without a budget."""
    n_valued_problems: int | None = None
    """Problems with a value of the metric in some seed: those in the mean."""
    delta_spread: Spread | None = None
    """Variances of the paired difference, from which `stillroom power` tells how many problems or seeds are needed."""


@dataclass(frozen=True, slots=True)
class ExcludedRun:
    """A planned run that is in no row, and why."""

    benchmark: str
    label: str
    seed: int
    run_id: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A study's table with the rules it was made by."""

    plan: str
    """Name of the plan, or what the runs are called."""
    plan_hash: str
    split: str
    metric: str
    baseline: str | None
    """Label of the baseline; None where none was named and the plan has no row of the untrained model."""
    rows: tuple[Row, ...]
    excluded: tuple[ExcludedRun, ...]
    budget: Budget | None = None
    """What every row may have spent; None compares at the last evaluations."""
    filters: tuple[str, ...] = ()
    n_filtered: int = 0
    """Runs that the filters left out."""
    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES
    bootstrap_seed: int = BOOTSTRAP_SEED

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: plain dicts, lists and numbers."""
        return asdict(self)
