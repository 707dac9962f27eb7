"""The numbers of the views against a computation by hand from the raw rows."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from datetime import datetime
from importlib import resources
from pathlib import Path

import duckdb
import numpy as np
import pytest

from evaluation import statistics
from evaluation.results.database import create_schema
from evaluation.results.ingest import ingest
from evaluation.results.records import AnswerRecord, EvaluationRecord, GradeRecord, PlanCell, RunEvent
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from tests.evaluation.results.factory import (
    START,
    Cell,
    Study,
    base_run_id,
    cost_at,
    run_id,
    write_base,
    write_evaluation,
    write_run,
    write_study,
)

STUDY = Study(samples=5, clusters=7, unscored_rate=0.15, problems=20)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory):
    store = tmp_path_factory.mktemp("store")
    write_study(store, STUDY)
    with open_snapshot(store) as connection:
        yield connection


def counts(con: duckdb.DuckDBPyConnection, run: str, update: int) -> dict[str, tuple[int, int, int, str | None]]:
    """Problem -> (answers, scored, passed, cluster), counted in Python from the tables."""
    verdicts = dict(con.execute("SELECT answer_key, verdict FROM grades WHERE run_id = ?", [run]).fetchall())
    answers = con.execute(
        "SELECT problem_id, answer_key FROM answers WHERE run_id = ? AND update = ?", [run, update]
    ).fetchall()
    clusters = dict(con.execute("SELECT problem_id, cluster FROM problems WHERE run_id = ?", [run]).fetchall())
    by_problem = defaultdict(list)
    for problem, key in answers:
        by_problem[problem].append(verdicts[key])
    return {
        problem: (len(v), sum(x != "not_scored" for x in v), sum(x == "pass" for x in v), clusters[problem])
        for problem, v in by_problem.items()
    }


RUNS = [("demo-base", 0), ("demo-opsd-0", 10), ("demo-opsd-0", 20), ("demo-grpo-2", 20)]


@pytest.mark.parametrize(("run", "update"), RUNS)
def test_scores_equal_the_statistics_of_the_raw_answers(con: duckdb.DuckDBPyConnection, run: str, update: int) -> None:
    problems = counts(con, run, update)
    n, c = [v[1] for v in problems.values()], [v[2] for v in problems.values()]
    shares = [passed / scored if scored else np.nan for scored, passed in zip(n, c, strict=True)]
    accuracy = float(np.nanmean(shares))
    error = statistics.standard_error(shares, [v[3] for v in problems.values()])
    row = con.execute(
        "SELECT accuracy, standard_error, score, n_problems, n_scored_problems, n_answers, n_unscored, unscored_rate, "
        "n_clusters, complete, samples_per_problem FROM scores WHERE run_id = ? AND update = ?",
        [run, update],
    ).fetchone()
    assert row is not None
    assert row[0] == pytest.approx(accuracy, abs=1e-12)
    assert row[1] == pytest.approx(error, abs=1e-12)
    assert row[2] == pytest.approx(accuracy, abs=1e-12)  # the factory's score is 1 for a pass, else 0
    unscored = sum(v[0] - v[1] for v in problems.values())
    assert row[3:] == (20, sum(scored > 0 for scored in n), 100, unscored, unscored / 100, 7, True, 5)
    assert unscored > 0


def test_problem_scores_equal_the_raw_answers(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT problem_id, n_answers, n_scored, n_passed, cluster, accuracy, n_unscored FROM problem_scores "
        "WHERE run_id = 'demo-opsd-1' AND update = 20"
    ).fetchall()
    problems = counts(con, "demo-opsd-1", 20)
    assert {row[0]: row[1:5] for row in rows} == problems
    for _, answers, scored, passed, _, accuracy, unscored in rows:
        assert unscored == answers - scored
        assert accuracy == (passed / scored if scored else None)


@pytest.mark.parametrize(("run", "update"), RUNS)
def test_pass_at_k_equals_the_statistics(con: duckdb.DuckDBPyConnection, run: str, update: int) -> None:
    problems = counts(con, run, update)
    n, c = [v[1] for v in problems.values()], [v[2] for v in problems.values()]
    rows = con.execute(
        "SELECT k, pass_at_k, pass_hat_k, n_problems, n_excluded FROM pass_at_k "
        "WHERE run_id = ? AND update = ? ORDER BY k",
        [run, update],
    ).fetchall()
    assert [row[0] for row in rows] == [1, 2, 4, 5]
    for k, at, hat, used, excluded in rows:
        known = [(scored, passed) for scored, passed in zip(n, c, strict=True) if scored >= k]
        assert (used, excluded) == (len(known), len(n) - len(known))
        assert at == pytest.approx(np.mean([statistics.pass_at_k(*each, k) or 0.0 for each in known]), abs=1e-12)
        assert hat == pytest.approx(np.mean([statistics.pass_hat_k(*each, k) or 0.0 for each in known]), abs=1e-12)
    assert rows[-1][4] > 0  # some problems have an answer that was not scored


def test_the_vote_of_all_answers_equals_the_statistics() -> None:
    """Random verdicts and texts; the reference counts votes in Python."""
    rng = np.random.default_rng(0)
    con = duckdb.connect()
    create_schema(con)
    answers, grades, expected = [], [], []
    silent = 0
    when = datetime(2026, 1, 1)
    for problem in range(200):
        votes: Counter[str] = Counter()
        scored = 0
        for sample in range(5):
            verdict = str(rng.choice(["pass", "fail", "fail", "not_scored"], p=[0.2, 0.3, 0.4, 0.1]))
            read = None if rng.random() < 0.7 else str(rng.integers(3))
            key = f"{problem}/{sample}"
            line = (1, "w", problem * 5 + sample, when, False)
            answers.append(("r", key, 0, "b", "test", str(problem), sample, 1, 1, "stop", "f", 0, *line))
            grades.append(("r", key, "g", "1", verdict, None, read, None, None, None, *line, True))
            scored += verdict != "not_scored"
            if verdict == "pass":
                votes["right"] += 1
            elif verdict == "fail" and read is not None:
                votes[read] += 1
        unread = scored - votes.total()
        silent += not votes and unread > 0
        score = statistics.majority(votes.pop("right", 0), list(votes.values()), unread)
        expected += [] if score is None else [score]
    con.executemany(f"INSERT INTO answers VALUES ({', '.join('?' * 17)})", answers)
    con.executemany(f"INSERT INTO grades VALUES ({', '.join('?' * 16)})", grades)
    row = con.execute("SELECT maj_at_n, n_problems, n_without_votes, n FROM majority").fetchone()
    assert row is not None and 0 < row[2] == silent
    assert row[0] == pytest.approx(np.mean(expected), abs=1e-12)
    assert row[1:] == (len(expected), silent, 5)


def test_not_scored_answers_move_no_accuracy(tmp_path: Path) -> None:
    """A grader that fails on a tenth of the answers to right and wrong alike leaves the accuracy where it was."""
    study = Study(cells=(), problems=400, samples=1, base_accuracy=0.5)
    write_base(tmp_path / "a", study)
    ingest(tmp_path / "a")
    failing = Study(cells=(), problems=400, samples=1, base_accuracy=0.5, unscored_rate=0.1)
    write_base(tmp_path / "b", failing)
    ingest(tmp_path / "b")
    columns = "SELECT accuracy, unscored_rate, n_answers, n_scored_problems FROM scores"
    with open_snapshot(tmp_path / "a") as a, open_snapshot(tmp_path / "b") as b:
        whole, part = a.execute(columns).fetchone(), b.execute(columns).fetchone()
    assert whole is not None and part is not None
    assert whole[1:] == (0.0, 400, 400)
    assert part[1] == pytest.approx(0.1, abs=0.05) and part[3] == 400 - round(part[1] * 400)
    assert part[0] == pytest.approx(whole[0], abs=0.03)  # as wrong answers they would cost 5 points


def test_what_judges_is_over_scored_answers_and_what_describes_generation_over_all(tmp_path: Path) -> None:
    """Four answers of one problem; the last two were not scored, and one of them was cut."""
    answers = [  # verdict, lenient, well_formed, finish_reason, tokens
        ("pass", "pass", True, "stop", 2),
        ("fail", "pass", False, "length", 4),
        ("not_scored", "pass", True, "length", 6),
        ("not_scored", None, None, "stop", 8),
    ]
    with Spool(tmp_path / "runs" / "r", role="evaluator", attempt=1) as spool:
        for index, (verdict, lenient, well_formed, finish, tokens) in enumerate(answers):
            answer = AnswerRecord("r", 0, "addition", "test", "p", index, 3, tokens, finish, "file", index)
            score = None if verdict == "not_scored" else float(verdict == "pass")
            spool.append(answer)
            spool.append(GradeRecord("r", answer.key, "exact", "1", verdict, score, None, well_formed, lenient, None))
    ingest(tmp_path)
    columns = "accuracy, score, lenient_accuracy, format_rate, truncated_rate, completion_tokens, n_unscored"
    with open_snapshot(tmp_path) as con:
        for view in ("problem_scores", "scores"):
            assert con.execute(f"SELECT {columns} FROM {view}").fetchall() == [(0.5, 0.5, 1.0, 0.5, 0.5, 5.0, 2)], view


def test_an_evaluation_in_progress_is_not_a_score_yet(tmp_path: Path) -> None:
    study = Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,))
    write_study(tmp_path, study, ingested=False)
    run = run_id(study, study.cells[0], 0)
    with Spool(tmp_path / "runs" / run, role="evaluator", attempt=1) as spool:
        write_evaluation(tmp_path, spool, study, run, update=30, accuracy=0.8, seed=0)
    path = spool.path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-20]))  # the end has not been written
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        complete = con.execute("SELECT update, complete FROM scores WHERE run_id = ? ORDER BY update", [run]).fetchall()
        assert complete == [(10, True), (20, True), (30, False)]
        assert con.execute("SELECT update FROM final_scores WHERE run_id = ?", [run]).fetchall() == [(20,)]
        updates = con.execute("SELECT update FROM curves WHERE run_id = ? ORDER BY update", [run]).fetchall()
        assert updates == [(0,), (10,), (20,)]


def test_an_evaluation_with_missing_answers_is_not_whole(tmp_path: Path) -> None:
    study = Study(cells=(), problems=3)
    write_base(tmp_path, study)
    with Spool(tmp_path / "runs" / "demo-base", role="evaluator", attempt=2) as spool:
        spool.append(EvaluationRecord("demo-base", 0, "addition", "test", 4, 2, {}, 1.0, START))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT complete, n_problems FROM scores").fetchall() == [(False, 3)]
        assert con.execute("SELECT count(*) FROM final_scores").fetchone() == (0,)


def test_final_scores_are_the_last_of_done_runs(tmp_path: Path) -> None:
    cells = (
        Cell("Done", "opsd", 0.8),
        Cell("Failed", "grpo", 0.4, statuses=("queued", "running", "failed")),
        Cell("Running", "sft", 0.9, statuses=("queued", "running")),
    )
    write_study(tmp_path, Study(cells=cells, seeds=(0,)))
    with open_snapshot(tmp_path) as con:
        found = con.execute("SELECT label, update, trained_updates FROM final_scores ORDER BY label").fetchall()
        assert found == [("Base", 0, 0), ("Done", 20, 20)]
        overview = con.execute("SELECT label, status, error, updates FROM run_overview ORDER BY label").fetchall()
    assert overview == [
        ("Base", "done", None, 0),
        ("Done", "done", None, 20),
        ("Failed", "failed", "the trainer ran out of memory", 20),
        ("Running", "running", None, 20),
    ]


def test_curves_start_at_the_untrained_model(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT update, accuracy, from_base, rollout_tokens, trained_tokens, teacher_tokens, wall_seconds, "
        "source_run_id FROM curves WHERE run_id = 'demo-opsd-1' ORDER BY update"
    ).fetchall()
    (base,) = con.execute("SELECT accuracy FROM scores WHERE run_id = 'demo-base'").fetchone() or (None,)
    assert rows[0] == (0, base, True, 0, 0, 0, 0.0, base_run_id(STUDY))
    cost = cost_at(STUDY, 20)
    costs = tuple(cost[key] for key in ("rollout_tokens", "trained_tokens", "teacher_tokens", "wall_seconds"))
    assert rows[2][0] == 20 and rows[2][2] is False and rows[2][3:7] == costs and rows[2][7] == "demo-opsd-1"


def test_a_run_that_evaluated_its_own_start_keeps_it(tmp_path: Path) -> None:
    study = Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,))
    write_study(tmp_path, study, ingested=False)
    run = run_id(study, study.cells[0], 0)
    with Spool(tmp_path / "runs" / run, role="evaluator", attempt=1) as spool:
        write_evaluation(tmp_path, spool, study, run, update=0, accuracy=1.0, seed=0)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        start = con.execute("SELECT accuracy, from_base FROM curves WHERE run_id = ? AND update = 0", [run]).fetchall()
    assert start == [(1.0, False)]


def test_ablations_pair_by_problem_and_seed(con: duckdb.DuckDBPyConnection) -> None:
    scored = {
        run: {p: (v[2] / v[1]) for p, v in counts(con, run, update).items() if v[1]}
        for run, update in [("demo-opsd-1", 20), ("demo-grpo-1", 20), ("demo-base", 0)]
    }
    clusters = {p: v[3] for p, v in counts(con, "demo-base", 0).items()}
    for baseline_run, baseline in [("demo-grpo-1", "GRPO"), ("demo-base", "Base")]:
        shared = sorted(set(scored["demo-opsd-1"]) & set(scored[baseline_run]))
        deltas = [scored["demo-opsd-1"][p] - scored[baseline_run][p] for p in shared]
        row = con.execute(
            "SELECT n_problems, delta, standard_error, accuracy - baseline_accuracy, baseline_run_id FROM ablations "
            "WHERE label = 'OPSD' AND seed = 1 AND baseline_label = ?",
            [baseline],
        ).fetchall()
        error = statistics.standard_error(deltas, [clusters[p] for p in shared])
        assert row == [
            (
                len(shared),
                pytest.approx(np.mean(deltas), abs=1e-12),
                pytest.approx(error, abs=1e-12),
                pytest.approx(np.mean(deltas), abs=1e-12),
                baseline_run,
            )
        ]
    pairs = con.execute("SELECT count(*), count(DISTINCT (run_id, baseline_run_id)) FROM ablations").fetchone()
    # Three seeds: 4 cells with 3 others and the untrained model each.
    assert pairs == (3 * 4 * 4, 3 * 4 * 4)


def test_a_plan_is_its_newest_edition(tmp_path: Path) -> None:
    """Other code gives other runs under the same labels; another edition drops a cell: only the present counts."""
    old = Study(plan="demo", cells=(Cell("OPSD", "opsd", 0.8), Cell("GRPO", "grpo", 0.5)), seeds=(0, 1))
    write_study(tmp_path, old, ingested=False)
    new = Study(plan="demo", plan_hash="edition-2", cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0, 1))
    with Spool(tmp_path / "runs" / "new", role="driver", attempt=1) as spool:
        for seed in new.seeds:
            name = run_id(old, new.cells[0], seed)
            spool.append(PlanCell(name, "demo", "edition-2", 1, "OPSD", False, "demo-base", {}, {}, ()))
    ingest(tmp_path)
    sql = "SELECT label, seed, run_id FROM plan_cells WHERE plan = 'demo' ORDER BY seed"
    with open_snapshot(tmp_path) as con:
        assert con.execute(sql).fetchall() == [("OPSD", 0, "demo-opsd-0"), ("OPSD", 1, "demo-opsd-1")]
    again = Study(plan="changed code", cells=new.cells, seeds=(0,))
    write_run(tmp_path, again, again.cells[0], 0)
    with Spool(tmp_path / "runs" / "new", role="driver", attempt=1) as spool:
        name = run_id(again, again.cells[0], 0)
        spool.append(PlanCell(name, "demo", "edition-2", 1, "OPSD", False, "demo-base", {}, {}, ()))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        assert con.execute(sql).fetchall() == [("OPSD", 0, name), ("OPSD", 1, "demo-opsd-1")]


def test_two_plans_share_a_run(tmp_path: Path) -> None:
    study = write_study(tmp_path, Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,)), ingested=False)
    run = run_id(study, study.cells[0], 0)
    with Spool(tmp_path / "runs" / run, role="driver", attempt=1) as spool:
        spool.append(PlanCell(run, "other", "h", 3, "β = 0.5", False, None, {}, {"beta": 0.5}, ()))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        found = con.execute(
            "SELECT plan, label, run_id FROM plan_cells WHERE run_id = ? ORDER BY plan", [run]
        ).fetchall()
        assert found == [("demo", "OPSD", run), ("other", "β = 0.5", run)]
        assert con.execute("SELECT count(*) FROM run_overview WHERE run_id = ?", [run]).fetchone() == (1,)
        assert con.execute("SELECT count(*) FROM final_scores WHERE run_id = ?", [run]).fetchone() == (1,)


def test_a_run_resumed_after_a_failure_is_what_its_last_event_says(tmp_path: Path) -> None:
    study = Study(cells=(Cell("OPSD", "opsd", 0.8, statuses=("queued", "running", "failed")),), seeds=(0,))
    write_study(tmp_path, study, ingested=False)
    run = run_id(study, study.cells[0], 0)
    with Spool(tmp_path / "runs" / run, role="driver", attempt=2) as spool:
        spool.append(RunEvent(run, 3, "running", START + 1000))
        spool.append(RunEvent(run, 4, "done", START + 1001))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        row = con.execute("SELECT status, error, attempts FROM run_overview WHERE run_id = ?", [run]).fetchone()
    assert row == ("done", None, 2)


def test_metric_curves_carry_the_cost(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT update, value, rollout_tokens FROM metric_curves WHERE run_id = 'demo-sft-0' AND name = 'reward' "
        "ORDER BY update"
    ).fetchall()
    assert len(rows) == 20 and rows[4][0] == 5 and rows[4][2] == 5000
    assert rows[4][1] == pytest.approx(0.3 + 0.6 * 0.25)


def test_every_table_view_and_column_has_its_text(con: duckdb.DuckDBPyConnection) -> None:
    catalogue = tomllib.loads(resources.files("evaluation.results").joinpath("catalogue.toml").read_text())
    columns = con.execute("SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal").fetchall()
    assert [f"{table}.{column}" for table, column, comment in columns if not comment] == []
    relations = con.execute(
        "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal "
        "UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    assert [name for name, comment in relations if not comment] == []
    assert set(catalogue["relations"]) == {name for name, _ in relations}
    assert set(catalogue["columns"]) == {column for _, column, _ in columns}
    for relation, texts in catalogue["override"].items():
        assert set(texts) <= {column for table, column, _ in columns if table == relation}, relation


def test_fact_tables_have_no_keys_and_no_indexes(con: duckdb.DuckDBPyConnection) -> None:
    assert con.execute("SELECT count(*) FROM duckdb_indexes()").fetchone() == (0,)
    kinds = con.execute("SELECT DISTINCT constraint_type FROM duckdb_constraints()").fetchall()
    assert kinds == [("NOT NULL",)]
