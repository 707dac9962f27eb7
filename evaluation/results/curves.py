"""Learning curves of a plan: the mean over seeds with its band, at every evaluated update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.names import nearest
from evaluation.results.plans import METRICS, CompareError, find_plan
from evaluation.statistics import mean_over_seeds, seed_interval

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

BAND_RESAMPLES = 2_000
"""A page draws a hundred points at once; the table's intervals use more."""

COST_AXES = (
    "rollout_tokens",
    "trained_tokens",
    "teacher_tokens",
    "total_tokens",
    "wall_seconds",
    "gpu_seconds",
    "flop",
)
"""Costs that a curve may be drawn over. At one update a cell's value is the mean over its seeds."""
X_AXES = ("update", *COST_AXES)
"""What a curve may be drawn over."""


def learning_curves(
    con: duckdb.DuckDBPyConnection, plan: str | None, benchmark: str, *, split: str = "test", metric: str = "accuracy"
) -> pd.DataFrame:
    """One row a cell and evaluated update, in the plan's order.

    Columns: position, label, axes, method, is_control, update, n_seeds, n_planned, n_problems, unscored_rate,
    from_base, the means over seeds of X_AXES, and mean, low, high (NaN below three seeds). Runs that are not done
    count as far as they got, so ``n_seeds`` may change along a curve. Every evaluated point is there: nothing is
    sampled.
    """
    if metric not in METRICS:
        raise CompareError(f"unknown metric {metric!r}{nearest(metric, METRICS)}")
    plan, _ = find_plan(con, plan)
    chosen = {"plan": plan, "benchmark": benchmark, "split": split}
    costs = ", ".join(f"avg(v.{axis}) AS {axis}" for axis in COST_AXES)
    points = con.execute(
        f"""
        SELECT c.position, c.label, c.axes, c.method, c.is_control, v.update,
               count(*) AS n_seeds, any_value(n.n_planned) AS n_planned, max(v.n_problems) AS n_problems,
               sum(v.n_unscored) / sum(v.n_answers) AS unscored_rate, bool_and(v.from_base) AS from_base, {costs},
               list(v.source_run_id ORDER BY c.seed, v.run_id) AS source_run_ids
        {_PLAN_CURVES}
        GROUP BY ALL ORDER BY c.position, c.label, c.axes, v.update
        """,
        chosen,
    ).df()
    scores = _problem_scores(con, metric, chosen)
    bands = [
        scores.band([(run, update) for run in runs])
        for runs, update in zip(points.pop("source_run_ids"), points["update"], strict=True)
    ]
    for place, name in enumerate(("mean", "low", "high")):
        points[name] = [band[place] for band in bands]
    return points


def seed_curves(con: duckdb.DuckDBPyConnection, plan: str, benchmark: str, *, split: str = "test") -> pd.DataFrame:
    """One row a run and evaluated update: the dots behind ``learning_curves``, with the columns of view ``curves``."""
    return con.execute(
        f"""
        SELECT c.position, c.label, c.axes, c.method, c.is_control, c.seed, c.status, v.run_id, n.n_planned,
               v.* EXCLUDE (plan, label, is_control, method, model, seed, run_id)
        {_PLAN_CURVES}
        ORDER BY c.position, c.label, c.axes, c.seed, v.run_id, v.update
        """,
        {"plan": plan, "benchmark": benchmark, "split": split},
    ).df()


_PLAN_CURVES = """
    FROM plan_cells c
    JOIN curves v USING (run_id)
    JOIN (SELECT label, axes, count(*) AS n_planned FROM plan_cells WHERE plan = $plan GROUP BY ALL) n
        ON n.label = c.label AND n.axes = c.axes
    WHERE c.plan = $plan AND v.benchmark = $benchmark AND v.split = $split
"""


@dataclass(frozen=True, slots=True)
class _ProblemScores:
    """Scores of problems at every checkpoint: [checkpoints, problems] with NaN, and what the axes are."""

    rows: dict[tuple[str, int], int]
    clusters: list[str]
    values: np.ndarray

    def band(self, checkpoints: list[tuple[str, int]]) -> tuple[float, float, float]:
        """Mean over seeds (one checkpoint each) and its interval; NaN where there is none."""
        rows = [self.rows[checkpoint] for checkpoint in checkpoints if checkpoint in self.rows]
        table = self.values[rows]
        mean = mean_over_seeds(table) if rows else None
        if mean is None:
            return np.nan, np.nan, np.nan
        band = seed_interval(table, self.clusters, resamples=BAND_RESAMPLES)
        return (mean, band.low, band.high) if band else (mean, np.nan, np.nan)


_POINTS = """
    WITH points AS (
        SELECT run_id, update, problem_id, coalesce('c:' || cluster, 'p:' || problem_id) AS cluster, {metric} AS value
        FROM problem_scores
        WHERE benchmark = $benchmark AND split = $split AND {metric} IS NOT NULL AND run_id IN (
            SELECT run_id FROM plan_cells WHERE plan = $plan
            UNION SELECT base_run_id FROM plan_cells WHERE plan = $plan
        )
    )
"""


def _problem_scores(con: duckdb.DuckDBPyConnection, metric: str, chosen: dict[str, Any]) -> _ProblemScores:
    points = _POINTS.format(metric=metric)
    checkpoints = con.execute(f"{points} SELECT DISTINCT run_id, update FROM points ORDER BY ALL", chosen).fetchall()
    problems = con.execute(f"{points} SELECT DISTINCT problem_id, cluster FROM points ORDER BY ALL", chosen).fetchall()
    cells = con.execute(
        f"""
        {points}
        SELECT dense_rank() OVER (ORDER BY run_id, update) - 1 AS checkpoint,
               dense_rank() OVER (ORDER BY problem_id, cluster) - 1 AS problem, value
        FROM points
        """,
        chosen,
    ).fetchnumpy()
    values = np.full((len(checkpoints), len(problems)), np.nan)
    values[cells["checkpoint"], cells["problem"]] = cells["value"]
    return _ProblemScores({key: row for row, key in enumerate(checkpoints)}, [c for _, c in problems], values)
