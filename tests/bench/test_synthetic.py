"""The generator: the same facts each time, and every kind of trouble it promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.results.compare import compare
from evaluation.results.snapshot import open_snapshot
from tests.bench.large import dashboard_queries, documented_queries, parameters_of
from tests.bench.synthetic import LARGE, PERIODS, Shape, metric_table, plan_runs, right_answers, synthetic_store


def test_what_is_in_the_store_is_what_was_drawn(tmp_path: Path) -> None:
    shape = Shape(runs=30, updates=8, metrics=14, problems=5, evaluations=2, completion_bytes=30)
    runs = synthetic_store(tmp_path, runs=30, updates=8, metrics=14, problems=5, evaluations=2, completion_bytes=30)
    assert runs == plan_runs(shape) and len({run.plan for run in runs}) == 2
    states = {run.run_id: run.status for run in runs}
    assert set(states.values()) == {"done", "failed", "running"} and any(run.partial for run in runs)
    trained = next(run for run in runs if run.method == "grpo" and run.status == "done")
    names, values, recorded = metric_table(shape, 8, np.random.default_rng([0, trained.number]))
    expected = sorted(
        (name, update + 1, values[update, column])
        for column, name in enumerate(names)
        for update in range(8)
        if recorded[update, column] and not np.isnan(values[update, column])
    )
    with open_snapshot(tmp_path) as con:
        sql = "SELECT name, update, value FROM latest_steps WHERE run_id = ? AND value IS NOT NULL ORDER BY ALL"
        assert con.execute(sql, [trained.run_id]).fetchall() == expected
        assert dict(con.execute("SELECT run_id, status FROM run_status").fetchall()) == states
        assert con.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)
        sql = "SELECT sum(n_passed + n_unscored), sum(n_unscored) FROM problem_scores WHERE run_id = ? AND update = 8"
        passed, unscored = con.execute(sql, [trained.run_id]).fetchall()[0]
        right = right_answers(shape, trained, 8)
        assert unscored == 0 and passed == right.sum()
        table = compare(con, plan=trained.plan)
        planned = [run for run in runs if run.plan == trained.plan]
        listed = {seed.run_id for row in table.rows for seed in row.seeds} | {run.run_id for run in table.excluded}
        assert listed == {run.run_id for run in planned}
        for _, query in [*dashboard_queries(), *documented_queries()]:  # what the bench asks can be asked
            con.execute(query, parameters_of(query)).fetchall()


def test_the_large_shape_is_as_large_as_it_says() -> None:
    share = sum(1 / PERIODS[metric % len(PERIODS)] for metric in range(LARGE.metrics))
    trained = sum(run.method != "base" for run in plan_runs(LARGE))
    assert LARGE.runs == 1_000 and trained * LARGE.updates * share * 0.95 > 20e6
    assert 1.9e6 < trained * LARGE.evaluations * LARGE.problems * LARGE.samples < 2.1e6
