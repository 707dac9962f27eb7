"""The table of a study: one row a cell, each with its seeds, its interval, its cost and its test against a baseline.

Everything is read from the views and computed by ``evaluation.statistics``; the same rows give the same table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from evaluation.names import nearest
from evaluation.results.comparison import Comparison, ExcludedRun, Row, SeedScore
from evaluation.results.plans import METRICS, CompareError, find_benchmarks, find_plan
from evaluation.results.records import COST_KEYS
from evaluation.statistics import (
    holm,
    mean_over_seeds,
    paired_test,
    seed_interval,
    standard_error,
    t_interval,
    unanimous_interval,
)

if TYPE_CHECKING:
    import duckdb

BASE = "base"
"""Method of the run of the untrained model; as a baseline it means that run, whatever the plan calls it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A planned run with its final result on one benchmark, if it has one."""

    label: str
    axes: str
    method: str
    is_control: bool
    seed: int
    run_id: str
    base_run_id: str | None
    status: str
    update: int | None
    n_problems: int
    n_answers: int
    n_unscored: int
    cost: tuple[float | None, ...]

    @property
    def cell(self) -> tuple[str, str]:
        return self.label, self.axes


Problems = Mapping[str, tuple[float, str]]
"""Problem id -> (score, cluster)."""


def compare(
    con: duckdb.DuckDBPyConnection,
    *,
    plan: str | None = None,
    benchmark: str | None = None,
    split: str = "test",
    baseline: str | None = None,
    baseline_axes: str | None = None,
    metric: str = "accuracy",
) -> Comparison:
    """The table of one plan as it stands in the snapshot ``con``.

    ``plan`` None takes the plan recorded last, ``benchmark`` None all that its runs were evaluated on. Runs count
    when they are done and their last evaluation is whole; all others are listed with the reason. ``baseline`` is a
    label, or the key of a method that one label has; None takes the untrained model ("base") if the plan has a row of
    it, else the table has no differences. The baseline is paired by seed and problem; the untrained model is paired
    with every seed of the runs that start from it. ``baseline_axes`` (as in ``Row.axes``) takes one cell of a label
    that the plan's axes repeat, and all others are measured against that cell; without it each is measured against the
    baseline's cell at its own place. Raises CompareError for a name that is not there or is not one.
    """
    if metric not in METRICS:
        raise CompareError(f"unknown metric {metric!r}{nearest(metric, METRICS)}")
    plan, plan_hash = find_plan(con, plan)
    benchmarks = find_benchmarks(con, plan, benchmark, split)
    rows: list[Row] = []
    excluded: list[ExcludedRun] = []
    name: str | None = None
    for each in benchmarks:
        runs = _planned_runs(con, plan, each, split)
        name = _find_baseline(runs, baseline)
        scores = _problem_scores(con, [run for run in runs if run.update is not None], each, split, metric)
        rows += _rows(each, runs, scores, _baseline_runs(runs, name, baseline_axes))
        excluded += [_excluded(each, split, run) for run in runs if run.run_id not in scores]
    rows = _adjusted(rows)
    return Comparison(plan, plan_hash, split, metric, name, tuple(rows), tuple(excluded))


def _planned_runs(con: duckdb.DuckDBPyConnection, plan: str, benchmark: str, split: str) -> list[_Run]:
    costs = ", ".join(f"f.{key}" for key in COST_KEYS)
    rows = con.execute(
        f"""
        SELECT c.label, c.axes, c.method, c.is_control, c.seed, c.run_id, c.base_run_id, c.status,
               f.update, coalesce(f.n_problems, 0), coalesce(f.n_answers, 0), coalesce(f.n_unscored, 0), {costs}
        FROM plan_cells c
        LEFT JOIN (SELECT * FROM final_scores WHERE benchmark = ? AND split = ?) f USING (run_id)
        WHERE c.plan = ?
        ORDER BY c.position, c.label, c.axes, c.seed, c.run_id
        """,
        [benchmark, split, plan],
    ).fetchall()
    names = [field.name for field in fields(_Run) if field.name != "cost"]
    return [_Run(**dict(zip(names, row, strict=False)), cost=tuple(row[len(names) :])) for row in rows]


def _find_baseline(runs: Sequence[_Run], baseline: str | None) -> str | None:
    """The label meant by ``baseline``: a label, or a method's key (case does not matter); None for no baseline."""
    labels = list(dict.fromkeys(run.label for run in runs))
    if baseline in labels:
        return baseline
    wanted = (baseline or BASE).lower()
    for names in ({run.label: run.label for run in runs}, {run.label: run.method for run in runs}):
        meant = [label for label, name in names.items() if name.lower() == wanted]
        if len(meant) > 1:
            raise CompareError(f"baseline {wanted!r} may be any of {', '.join(map(repr, meant))}: name one of them")
        if meant:
            return meant[0]
    if baseline is None:
        return None
    raise CompareError(f"unknown baseline {baseline!r}{nearest(baseline, labels)}")


def _baseline_runs(runs: Sequence[_Run], name: str | None, axes: str | None) -> list[_Run]:
    """The runs to measure against; raises CompareError when the baseline has no cell at ``axes``."""
    named = [run for run in runs if run.label == name]
    found = [run for run in named if axes is None or run.axes == axes]
    if named and not found:
        raise CompareError(f"baseline {name!r} has no cell at {axes}{nearest(axes or '', [run.axes for run in named])}")
    return found


def _problem_scores(
    con: duckdb.DuckDBPyConnection, runs: Sequence[_Run], benchmark: str, split: str, metric: str
) -> dict[str, Problems]:
    """Run id -> its scored problems at the final checkpoint; a run without any scored problem is not in it."""
    rows = con.execute(
        f"""
        SELECT p.run_id, p.problem_id, p.{metric}, coalesce('c:' || p.cluster, 'p:' || p.problem_id)
        FROM problem_scores p
        JOIN (SELECT unnest(?) AS run_id, unnest(?) AS update) f USING (run_id, update)
        WHERE p.benchmark = ? AND p.split = ? AND p.{metric} IS NOT NULL
        """,
        [[run.run_id for run in runs], [run.update for run in runs], benchmark, split],
    ).fetchall()
    scores: dict[str, dict[str, tuple[float, str]]] = defaultdict(dict)
    for run_id, problem, value, cluster in rows:
        scores[run_id][problem] = (float(value), cluster)
    return dict(scores)


def _excluded(benchmark: str, split: str, run: _Run) -> ExcludedRun:
    if run.status != "done":
        reason = {"failed": "failed", "unknown": "never started"}.get(run.status, f"not finished ({run.status})")
    elif run.update is None:
        reason = f"no whole evaluation on {benchmark}, {split} split"
    else:
        reason = "no answer could be scored"
    return ExcludedRun(benchmark, run.label, run.seed, run.run_id, run.status, reason)


def _rows(
    benchmark: str, runs: Sequence[_Run], scores: Mapping[str, Problems], baselines: Sequence[_Run]
) -> list[Row]:
    cells: dict[tuple[str, str], list[_Run]] = defaultdict(list)
    for run in runs:
        cells[run.cell].append(run)
    baseline_cells = {run.cell for run in baselines}
    rows = []
    for cell in cells.values():
        counted = [run for run in cell if run.run_id in scores]
        if counted:
            is_baseline = cell[0].cell in baseline_cells
            rows.append(_row(benchmark, counted, len(cell), scores, baselines, is_baseline=is_baseline))
    return rows


def _row(
    benchmark: str,
    runs: Sequence[_Run],
    n_planned: int,
    scores: Mapping[str, Problems],
    baselines: Sequence[_Run],
    *,
    is_baseline: bool,
) -> Row:
    table, clusters = _table([scores[run.run_id] for run in runs])
    seed_means = np.nanmean(table, axis=1)
    answers = sum(run.n_answers for run in runs)
    pairs = [] if is_baseline else [(a, b) for a, b in _pairs(runs, baselines) if b.run_id in scores]
    test, paired_problems = None, 0
    if pairs:
        differences, paired_clusters = _table([_difference(scores[a.run_id], scores[b.run_id]) for a, b in pairs])
        paired_problems = differences.shape[1]
        if mean_over_seeds(differences) is not None:
            test = paired_test(differences, paired_clusters)
    first = runs[0]
    mean = mean_over_seeds(table)
    assert mean is not None  # every counted run has a scored problem
    return Row(
        benchmark=benchmark,
        label=first.label,
        method=first.method,
        is_control=first.is_control,
        is_baseline=is_baseline,
        axes=first.axes,
        seeds=tuple(
            SeedScore(run.seed, run.run_id, run.update or 0, float(value))
            for run, value in zip(runs, seed_means, strict=True)
        ),
        n_seeds=len(runs),
        n_planned=n_planned,
        n_problems=max(run.n_problems for run in runs),
        mean=mean,
        interval=seed_interval(table, clusters),
        is_unanimous=unanimous_interval(table, clusters) is not None,
        seed_t_interval=t_interval(seed_means),
        standard_error=standard_error(np.nanmean(table, axis=0), clusters),
        unscored_rate=sum(run.n_unscored for run in runs) / answers if answers else 0.0,
        cost=_mean_cost(runs),
        delta=test.difference if test else None,
        delta_interval=test.interval if test else None,
        n_pairs=len(pairs),
        n_paired_problems=paired_problems,
        p_value=test.p_value if test else None,
        p_holm=None,
        rule=test.rule if test else None,
    )


def _pairs(runs: Sequence[_Run], baselines: Sequence[_Run]) -> list[tuple[_Run, _Run]]:
    """Each run with the planned baseline run to measure it against; a run without exactly one such has no pair."""
    return [(run, partner) for run in runs if (partner := _partner(run, baselines)) is not None]


def _partner(run: _Run, baselines: Sequence[_Run]) -> _Run | None:
    """The untrained model that ``run`` starts from, and no other; of a trained baseline the run of the same seed.

    A baseline with several cells on the plan's axes gives the cell at the run's own place.
    """
    trained = [other for other in baselines if other.method != BASE]
    if len(trained) < len(baselines):
        return next((other for other in baselines if other.run_id == run.base_run_id), None)
    same_seed = [other for other in trained if other.seed == run.seed]
    same_place = [other for other in same_seed if other.axes == run.axes]
    found = same_seed if len(same_seed) == 1 else same_place
    return found[0] if found else None


def _difference(scores: Problems, baseline: Problems) -> Problems:
    return {
        problem: (value - baseline[problem][0], cluster)
        for problem, (value, cluster) in scores.items()
        if problem in baseline
    }


def _table(runs: Sequence[Problems]) -> tuple[np.ndarray, list[str]]:
    """[seeds, problems] with NaN where a run has no score, and each problem's cluster; problems in sorted order."""
    clusters = {problem: cluster for run in runs for problem, (_, cluster) in run.items()}
    order = {problem: column for column, problem in enumerate(sorted(clusters))}
    table = np.full((len(runs), len(order)), np.nan)
    for row, run in enumerate(runs):
        for problem, (value, _) in run.items():
            table[row, order[problem]] = value
    return table, [clusters[problem] for problem in order]


def _mean_cost(runs: Sequence[_Run]) -> dict[str, float | None]:
    costs: dict[str, float | None] = {}
    for index, key in enumerate(COST_KEYS):
        known = [cost for run in runs if (cost := run.cost[index]) is not None]
        costs[key] = float(np.mean(known)) if known else None
    return costs


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    adjusted = holm([row.p_value for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
