"""Learning curves of a plan: the mean over seeds with its band, at every evaluated update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evaluation.results.plans import METRICS, CompareError, find_plan, nearest
from evaluation.statistics import CONFIDENCE, FEWEST_SEEDS, bootstrap_means, mean_over_seeds

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

BAND_RESAMPLES = 2_000
"""A page draws a hundred points at once; the table's intervals use more."""

X_AXES = ("update", "rollout_tokens", "trained_tokens", "teacher_tokens", "wall_seconds", "gpu_seconds", "flop")
"""What a curve may be drawn over. At one update a cell's value is the mean over its seeds."""


def learning_curves(
    con: duckdb.DuckDBPyConnection, plan: str | None, benchmark: str, *, split: str = "test", metric: str = "accuracy"
) -> pd.DataFrame:
    """One row a cell and evaluated update, in the plan's order.

    Columns: position, label, axes, method, is_control, update, mean, low, high (NaN below three seeds), n_seeds,
    n_planned, n_problems, unscored_rate, from_base, and the means over seeds of X_AXES. Runs that are not done count
    as far as they got, so ``n_seeds`` may change along a curve. Every evaluated point is there: nothing is sampled.
    """
    import pandas as pd

    if metric not in METRICS:
        raise CompareError(f"unknown metric {metric!r}{nearest(metric, METRICS)}")
    plan, _ = find_plan(con, plan)
    points = seed_curves(con, plan, benchmark, split=split)
    scores = _problem_scores(con, plan, benchmark, split, metric)
    rows = []
    for (_, _, _, update), group in points.groupby(["position", "label", "axes", "update"], sort=True):
        runs = [scores.get((source, update)) for source in group["source_run_id"]]
        table = (
            pd.concat([run for run in runs if run is not None], axis=1) if any(r is not None for r in runs) else None
        )
        first = group.iloc[0]
        row = {name: first[name] for name in ("position", "label", "axes", "method", "is_control")}
        row |= {"update": update, **_band(table), "n_seeds": len(group), "n_planned": first["n_planned"]}
        row |= {"n_problems": group["n_problems"].max(), "from_base": bool(group["from_base"].all())}
        row["unscored_rate"] = group["n_unscored"].sum() / group["n_answers"].sum()
        row |= {axis: group[axis].mean() for axis in X_AXES if axis != "update"}
        rows.append(row)
    columns = ["position", "label", "axes", "method", "is_control", "update", "mean", "low", "high", "n_seeds"]
    columns += ["n_planned", "n_problems", "unscored_rate", "from_base", *[axis for axis in X_AXES if axis != "update"]]
    return pd.DataFrame(rows, columns=columns)


def seed_curves(con: duckdb.DuckDBPyConnection, plan: str, benchmark: str, *, split: str = "test") -> pd.DataFrame:
    """One row a run and evaluated update: the dots behind ``learning_curves``, with the columns of view ``curves``."""
    return con.execute(
        """
            SELECT c.position, c.label, c.axes, c.method, c.is_control, c.seed, c.status, v.run_id, v.source_run_id,
                   n.n_planned, v.* EXCLUDE (plan, label, is_control, method, model, seed, run_id, source_run_id)
            FROM plan_cells c
            JOIN curves v USING (run_id)
            JOIN (SELECT label, axes, count(*) AS n_planned FROM plan_cells WHERE plan = $plan GROUP BY ALL) n
                ON n.label = c.label AND n.axes = c.axes
            WHERE c.plan = $plan AND v.benchmark = $benchmark AND v.split = $split
            ORDER BY c.position, c.label, c.axes, c.seed, v.update
            """,
        {"plan": plan, "benchmark": benchmark, "split": split},
    ).df()


def _problem_scores(
    con: duckdb.DuckDBPyConnection, plan: str, benchmark: str, split: str, metric: str
) -> dict[tuple[str, int], pd.Series]:
    """(run, update) -> its scores, indexed by problem and cluster."""
    frame = con.execute(
        f"""
        SELECT run_id, update, problem_id, coalesce('c:' || cluster, 'p:' || problem_id) AS cluster, {metric} AS value
        FROM problem_scores
        WHERE benchmark = $benchmark AND split = $split AND {metric} IS NOT NULL AND run_id IN (
            SELECT run_id FROM plan_cells WHERE plan = $plan
            UNION SELECT base_run_id FROM plan_cells WHERE plan = $plan
        )
        """,
        {"plan": plan, "benchmark": benchmark, "split": split},
    ).df()
    return {
        key: group.set_index(["problem_id", "cluster"])["value"].sort_index()
        for key, group in frame.groupby(["run_id", "update"], sort=False)
    }


def _band(table: pd.DataFrame | None) -> dict[str, float]:
    """Mean over seeds of [problems, seeds] and its interval; NaN where there is none."""
    band = {"mean": np.nan, "low": np.nan, "high": np.nan}
    values = None if table is None else table.to_numpy().T
    mean = None if values is None else mean_over_seeds(values)
    if values is None or table is None or mean is None:
        return band
    band["mean"] = mean
    if len(values) >= FEWEST_SEEDS:
        clusters = list(table.index.get_level_values("cluster"))
        means = bootstrap_means(values, clusters, resample_seeds=True, resamples=BAND_RESAMPLES)
        band["low"], band["high"] = np.nanquantile(means, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return band
