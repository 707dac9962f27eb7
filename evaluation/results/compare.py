"""The table of a study: one row a cell, each with its seeds, its interval, its cost and its test against a baseline.

Everything is read from the views and computed by ``evaluation.statistics``; the same rows give the same table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evaluation.names import nearest
from evaluation.results.budgets import Budget, Checkpoint, check_budget, find_budget, last_checkpoints, why_not
from evaluation.results.comparison import Comparison, ExcludedRun, Row, SeedScore
from evaluation.results.measures import Measure, Problems, parse_measure, problem_values
from evaluation.results.plans import CompareError, find_benchmarks
from evaluation.results.records import COST_KEYS
from evaluation.results.selection import BASE, SelectedRun, select_runs
from evaluation.statistics import (
    holm,
    mean_over_seeds,
    paired_test,
    seed_interval,
    spread_of,
    standard_error,
    t_interval,
    unanimous_interval,
)

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class _Scored:
    """A run at the checkpoint that counts, with its problems' values there."""

    run: SelectedRun
    at: Checkpoint
    problems: Problems


def compare(
    con: duckdb.DuckDBPyConnection,
    *,
    plan: str | None = None,
    plans: Sequence[str] = (),
    runs: Sequence[str] = (),
    where: Sequence[str] = (),
    tags: Sequence[str] = (),
    benchmark: str | None = None,
    split: str = "test",
    baseline: str | None = None,
    baseline_axes: str | None = None,
    metric: str = "accuracy",
    budget_by: str | None = None,
    budget: float | None = None,
) -> Comparison:
    """The table of one plan (or of several, or of single runs) as it stands in the snapshot ``con``.

    ``plan`` None takes the plan recorded last; ``runs`` are beginnings of run ids, taken instead of plans; ``where``
    and ``tags`` filter (see ``select_runs``). ``benchmark`` None takes all that the runs were evaluated on. Runs count
    when they are done, not archived, and their last evaluation is whole; all others are listed with the reason.
    ``metric`` as in ``parse_measure``.

    ``baseline`` is a label, or the key of a method that one label has; None takes the untrained model ("base") if
    there is a row of it, else the table has no differences. The baseline is paired by seed and problem; the untrained
    model is paired with every seed of the runs that start from it. ``baseline_axes`` (as in ``Row.axes``) takes one
    cell of a label that the plan's axes repeat, and all others are measured against that cell; without it each is
    measured against the baseline's cell at its own place.

    ``budget_by`` (a key of BUDGETS) compares at equal cost: each run at its last whole evaluation that spent no more
    than ``budget``; None takes the smallest spend of a row. Raises CompareError for a name that is not there or is not
    one.
    """
    measure = parse_measure(metric)
    check_budget(budget_by, budget)
    chosen = select_runs(con, plans=[plan] if plan is not None else plans, runs=runs, where=where, tags=tags)
    benchmarks = find_benchmarks(con, chosen.title, [run.run_id for run in chosen.runs], benchmark, split)
    limit = None
    if budget_by is not None:
        limit = find_budget(con, budget_by, budget, chosen.runs, benchmarks, split)
    name = _find_baseline(chosen.runs, baseline)
    baselines = _baseline_runs(chosen.runs, name, baseline_axes)
    rows: list[Row] = []
    excluded: list[ExcludedRun] = []
    for each in benchmarks:
        scored, missing = _scored(con, chosen.runs, each, split, measure, limit)
        rows += _rows(each, chosen.runs, scored, baselines)
        excluded += missing
    return Comparison(
        plan=chosen.title,
        plan_hash=chosen.plan_hash,
        split=split,
        metric=measure.name,
        baseline=name,
        rows=tuple(_adjusted(rows)),
        excluded=tuple(excluded),
        budget=limit,
        filters=chosen.filters,
        n_filtered=chosen.n_filtered,
    )


def _scored(
    con: duckdb.DuckDBPyConnection,
    runs: Sequence[SelectedRun],
    benchmark: str,
    split: str,
    measure: Measure,
    budget: Budget | None,
) -> tuple[list[_Scored], list[ExcludedRun]]:
    """The runs with a value at the checkpoint that counts, and the others with the reason; in the table's order."""
    last = last_checkpoints(con, runs, benchmark, split, by=budget.by if budget else None)
    at = last
    if budget is not None:
        at = last_checkpoints(con, runs, benchmark, split, by=budget.by, within=budget.value)
    values = problem_values(con, measure, [(run, one.update) for run, one in at.items()], benchmark, split)
    scored, excluded = [], []
    for run in runs:
        if run.run_id in values:
            scored.append(_Scored(run, at[run.run_id], values[run.run_id]))
            continue
        reason = None if run.run_id in at else why_not(run, benchmark, split, budget, last)
        reason = reason or _no_value(measure)
        excluded.append(ExcludedRun(benchmark, run.label, run.seed, run.run_id, run.status, reason))
    return scored, excluded


def _no_value(measure: Measure) -> str:
    if measure.kind != "column":
        return f"no problem has {measure.k} scored answers, which {measure.name} needs"
    return "no answer could be scored" if measure.name == "accuracy" else f"no answer has a {measure.name}"


def _find_baseline(runs: Sequence[SelectedRun], baseline: str | None) -> str | None:
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


def _baseline_runs(runs: Sequence[SelectedRun], name: str | None, axes: str | None) -> list[SelectedRun]:
    """The runs to measure against; raises CompareError when the baseline has no cell at ``axes``."""
    named = [run for run in runs if run.label == name]
    found = [run for run in named if axes is None or run.axes == axes]
    if named and not found:
        raise CompareError(f"baseline {name!r} has no cell at {axes}{nearest(axes or '', [run.axes for run in named])}")
    return found


def _rows(
    benchmark: str, runs: Sequence[SelectedRun], scored: Sequence[_Scored], baselines: Sequence[SelectedRun]
) -> list[Row]:
    planned: dict[tuple[str, str, str], int] = defaultdict(int)
    for run in runs:
        planned[run.cell] += not run.is_archived
    cells: dict[tuple[str, str, str], list[_Scored]] = defaultdict(list)
    for one in scored:
        cells[one.run.cell].append(one)
    baseline_cells = {run.cell for run in baselines}
    by_id = {one.run.run_id: one for one in scored}
    return [
        _row(
            benchmark,
            cells[cell],
            count,
            [] if cell in baseline_cells else _pairs(cells[cell], baselines, by_id),
            is_baseline=cell in baseline_cells,
        )
        for cell, count in planned.items()
        if cell in cells
    ]


def _row(
    benchmark: str,
    seeds: Sequence[_Scored],
    n_planned: int,
    pairs: Sequence[tuple[_Scored, _Scored]],
    *,
    is_baseline: bool,
) -> Row:
    table, clusters = _table([one.problems for one in seeds])
    seed_means = np.nanmean(table, axis=1)
    answers = sum(one.at.n_answers for one in seeds)
    test, paired_problems, spread = None, 0, None
    if pairs:
        differences, paired_clusters = _table([_difference(a.problems, b.problems) for a, b in pairs])
        paired_problems = differences.shape[1]
        shared = differences[:, ~np.isnan(differences).any(axis=0)]
        spread = spread_of(shared) if shared.shape[1] > 1 else None
        if mean_over_seeds(differences) is not None:
            test = paired_test(differences, paired_clusters)
    first = seeds[0].run
    mean = mean_over_seeds(table)
    assert mean is not None  # every run here has a problem with a value
    return Row(
        benchmark=benchmark,
        label=first.label,
        method=first.method,
        is_control=first.is_control,
        is_baseline=is_baseline,
        axes=first.axes,
        seeds=tuple(
            SeedScore(one.run.seed, one.run.run_id, one.at.update, float(value))
            for one, value in zip(seeds, seed_means, strict=True)
        ),
        n_seeds=len(seeds),
        n_planned=n_planned,
        n_problems=max(one.at.n_problems for one in seeds),
        mean=mean,
        interval=seed_interval(table, clusters),
        is_unanimous=unanimous_interval(table, clusters) is not None,
        seed_t_interval=t_interval(seed_means),
        standard_error=standard_error(np.nanmean(table, axis=0), clusters),
        unscored_rate=sum(one.at.n_unscored for one in seeds) / answers if answers else 0.0,
        cost=_mean_cost(seeds),
        delta=test.difference if test else None,
        delta_interval=test.interval if test else None,
        n_pairs=len(pairs),
        n_paired_problems=paired_problems,
        p_value=test.p_value if test else None,
        p_holm=None,
        rule=test.rule if test else None,
        plan=first.plan,
        is_retention=benchmark in first.retention,
        spent=_mean([one.at.spent for one in seeds]),
        n_valued_problems=table.shape[1],
        delta_spread=spread,
    )


def _pairs(
    seeds: Sequence[_Scored], baselines: Sequence[SelectedRun], scored: Mapping[str, _Scored]
) -> list[tuple[_Scored, _Scored]]:
    """Each run with the baseline run to measure it against; a run without exactly one such has no pair."""
    partners = [(one, _partner(one.run, baselines)) for one in seeds]
    return [(one, scored[run.run_id]) for one, run in partners if run is not None and run.run_id in scored]


def _partner(run: SelectedRun, baselines: Sequence[SelectedRun]) -> SelectedRun | None:
    """The untrained model that ``run`` starts from, and no other; of a trained baseline the run of the same seed.

    A baseline with several cells gives the one of the run's own plan and place on its axes.
    """
    trained = [other for other in baselines if other.method != BASE]
    if len(trained) < len(baselines):
        return next((other for other in baselines if other.run_id == run.base_run_id), None)
    found = [other for other in trained if other.seed == run.seed]
    if len(found) > 1:
        found = [other for other in found if other.axes == run.axes]
    if len(found) > 1:
        found = [other for other in found if other.plan == run.plan]
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


def _mean_cost(seeds: Sequence[_Scored]) -> dict[str, float | None]:
    return {key: _mean([one.at.cost[index] for one in seeds]) for index, key in enumerate(COST_KEYS)}


def _mean(values: Sequence[float | None]) -> float | None:
    """Over what is known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    adjusted = holm([row.p_value for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
