"""Which runs a table is about: several plans, single runs, filters, tags, archived runs, and equal cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation import statistics
from evaluation.results.compare import compare
from evaluation.results.differences import Sides, difference, differences
from evaluation.results.ingest import ingest
from evaluation.results.plans import CompareError
from evaluation.results.records import RunMark
from evaluation.results.selection import flatten, select_runs
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.tables import footnotes, to_markdown
from tests.evaluation.results.factory import Cell, Study, correct, run_id, write_run, write_study

ONE = Study(
    plan="one",
    problems=24,
    samples=4,
    updates=20,
    every=5,
    cells=(Cell("OPSD", "opsd", 0.8), Cell("GRPO", "grpo", 0.5)),
)
TWO = replace(ONE, plan="two", updates=10, cells=(Cell("OPSD", "opsd", 0.7), Cell("SFT", "sft", 0.9)))


def mark(store: Path, run: str, kind: str, value: str, *, is_set: bool = True) -> None:
    with Spool(store / "runs" / run, role="user", attempt=1) as spool:
        spool.append(RunMark(run, kind, value, is_set, "me", 1.0))


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory):
    store = tmp_path_factory.mktemp("store")
    write_study(store, ONE, ingested=False)
    write_study(store, TWO, ingested=False)
    for seed in ONE.seeds:
        mark(store, run_id(ONE, ONE.cells[0], seed), "tag", "paper")
    mark(store, run_id(ONE, ONE.cells[0], 2), "tag", "paper", is_set=False)
    mark(store, run_id(TWO, TWO.cells[1], 1), "archive", "")
    mark(store, run_id(TWO, TWO.cells[1], 1), "note", "its data was wrong")
    ingest(store)
    with open_snapshot(store) as connection:
        yield connection


def truth(study: Study, cell: Cell, seed: int, update: int) -> np.ndarray:
    """[problems] shares of right answers, from the factory's draws and not from the store."""
    accuracy = study.base_accuracy + (cell.final_accuracy - study.base_accuracy) * update / study.updates
    return correct(study, run_id(study, cell, seed), accuracy, update, seed)


def test_marks_as_they_stand(con) -> None:
    rows = con.execute("SELECT run_id, tags, notes, is_archived FROM run_marks ORDER BY run_id").fetchall()
    found = {run: rest for run, *rest in rows}
    assert found[run_id(ONE, ONE.cells[0], 0)] == [["paper"], [], False]
    assert found[run_id(ONE, ONE.cells[0], 2)] == [[], [], False]
    assert found[run_id(TWO, TWO.cells[1], 1)] == [[], ["its data was wrong"], True]
    assert len(found) == 2 + 2 * 2 * 3
    # A tag is no work on the run.
    active = con.execute("SELECT last_activity FROM run_overview WHERE run_id = 'one-opsd-0'").fetchone()
    sql = "SELECT max(last_at), max(last_at) FILTER (role <> 'user') FROM ledger WHERE run_id = 'one-opsd-0'"
    last, by_the_run = con.execute(sql).fetchone()
    assert active == (by_the_run,) and by_the_run < last


def test_archived_runs_are_listed_and_in_no_row(con) -> None:
    table = compare(con, plan="two")
    sft = next(row for row in table.rows if row.label == "SFT")
    assert (sft.n_seeds, sft.n_planned, [seed.seed for seed in sft.seeds]) == (2, 2, [0, 2])
    assert [(run.seed, run.reason) for run in table.excluded] == [(1, "archived")]
    assert any("archived" in note for note in footnotes(table))


def test_two_plans_side_by_side_on_the_same_problems(con) -> None:
    table = compare(con, plans=("one", "two"), baseline="GRPO")
    assert [(row.plan, row.label) for row in table.rows] == [
        ("one", "Base"),
        ("one", "OPSD"),
        ("one", "GRPO"),
        ("two", "Base"),
        ("two", "OPSD"),
        ("two", "SFT"),
    ]
    other = table.rows[4]
    expected = [
        (truth(TWO, TWO.cells[0], s, 10).mean(1) - truth(ONE, ONE.cells[1], s, 20).mean(1)).mean() for s in range(3)
    ]
    assert other.delta == pytest.approx(np.mean(expected), abs=1e-12)
    assert "OPSD (two)" in to_markdown(table) and "| SFT |" in to_markdown(table)


def test_single_runs_by_the_beginning_of_their_ids(con) -> None:
    table = compare(con, runs=("one-opsd-1", "two-sft-0", "one-grpo-1"), baseline="GRPO")
    assert [(row.label, row.n_seeds, row.n_planned) for row in table.rows] == [
        ("OPSD", 1, 1),
        ("SFT", 1, 1),
        ("GRPO", 1, 1),
    ]
    assert table.rows[0].n_pairs == 1 and table.rows[1].n_pairs == 0
    with pytest.raises(CompareError, match="may be any of 3"):
        compare(con, runs=("one-opsd",))
    with pytest.raises(CompareError, match="no run 'one-opdd-1' in this store; did you mean 'one-opsd-1'"):
        compare(con, runs=("one-opdd-1",))
    with pytest.raises(CompareError, match="not both"):
        compare(con, plans=("one",), runs=("one-opsd-1",))


@pytest.mark.parametrize(
    ("where", "tags", "kept"),
    [
        (["seed=1"], [], {"one-opsd-1", "one-grpo-1"}),
        (["seed!=1"], [], {"one-opsd-0", "one-opsd-2", "one-grpo-0", "one-grpo-2"}),
        (["seed>=1", "method=opsd"], [], {"one-opsd-1", "one-opsd-2"}),
        (["label=GRPO", "seed<1"], [], {"one-grpo-0"}),
        (["budget=updates", "seed=0"], [], {"one-opsd-0", "one-grpo-0"}),
        (["budget.kind=updates", "seed=0"], [], {"one-opsd-0", "one-grpo-0"}),
        (["method.*=grpo", "seed=0"], [], {"one-grpo-0"}),
        (["model=another"], [], set()),
        (["tags=synthetic", "seed=0"], [], {"one-opsd-0", "one-grpo-0"}),
        ([], ["paper"], {"one-opsd-0", "one-opsd-1"}),
    ],
)
def test_filters(con, where: list[str], tags: list[str], kept: set[str]) -> None:
    chosen = select_runs(con, plans=["one"], where=where, tags=tags)
    assert {run.run_id for run in chosen.runs} == kept | {"one-base"}
    assert chosen.n_filtered == 6 - len(kept)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("seed", "write PATH=VALUE"),
        ("sead=1", "no run has 'sead'; did you mean 'seed'"),
        ("kind=updates", "did you mean 'budget.kind'"),
        ("label<x", "compares numbers"),
    ],
)
def test_wrong_filters_are_explained(con, where: str, says: str) -> None:
    with pytest.raises(CompareError, match=says):
        select_runs(con, plans=["one"], where=[where])


def test_what_a_filter_leaves_out_is_said(con) -> None:
    table = compare(con, plan="one", where=["seed=0"])
    assert any("Only runs with seed=0" in note and "4 left out" in note for note in footnotes(table))
    assert [row.n_seeds for row in table.rows] == [1, 1, 1]


def test_parts_with_a_kind_are_leaves_and_nodes() -> None:
    spec = {"views": {"teacher": {"weights": {"kind": "ema", "rate": 0.1}}}, "axes": {"a.b": [1, 2]}, "n": None}
    assert flatten(spec) == {
        "views.teacher.weights": "ema",
        "views.teacher.weights.kind": "ema",
        "views.teacher.weights.rate": 0.1,
        "axes.a.b": [1, 2],
        "n": None,
    }


# --- equal cost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "budget", "update"),
    [
        ("updates", 14, 10),
        ("updates", 15, 15),
        ("rollout_tokens", 9_999, 5),
        ("total_tokens", 25_000, 10),  # 1,000 rollout and 1,500 teacher tokens an update
        ("total_tokens", 24_999, 5),
        ("flop", 2e10, 20),
        ("seconds", 7.5, 15),
    ],
)
def test_each_run_at_its_last_evaluation_within_the_budget(con, by: str, budget: float, update: int) -> None:
    table = compare(con, plan="one", budget_by=by, budget=budget)
    assert table.budget is not None and not table.budget.is_default
    for row, cell in zip(table.rows[1:], ONE.cells, strict=True):
        values = np.array([truth(ONE, cell, seed, update).mean(1) for seed in ONE.seeds])
        assert {seed.update for seed in row.seeds} == {update}
        assert row.mean == pytest.approx(values.mean(), abs=1e-12)
        assert row.spent is not None and row.spent <= budget
    assert table.rows[0].spent == 0 and table.rows[0].seeds[0].update == 0


def test_the_default_budget_is_what_the_cheapest_row_spent(con) -> None:
    table = compare(con, plans=("one", "two"), budget_by="rollout_tokens")
    assert table.budget is not None and (table.budget.value, table.budget.is_default) == (10_000, True)
    assert {seed.update for row in table.rows if row.method != "base" for seed in row.seeds} == {10}
    assert any("smallest spend" in note for note in footnotes(table))


def test_runs_without_an_evaluation_in_the_budget_are_listed(con) -> None:
    table = compare(con, plan="one", budget_by="updates", budget=4)
    assert [row.label for row in table.rows] == ["Base"]
    assert len(table.excluded) == 6 and {run.reason for run in table.excluded} == {"no evaluation within 4 updates"}


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    study = replace(ONE, seeds=(0,), problems=4, samples=1)
    write_study(tmp_path, study, ingested=False)
    for file in tmp_path.glob("runs/*opsd*/spool/*.jsonl"):
        file.write_text(file.read_text().replace('"flop":', '"gpu_seconds":'))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con, budget_by="flop")
    assert [run.reason for run in table.excluded] == ["its flop were not measured"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"budget_by": "tokens"}, "unknown 'tokens'; did you mean 'total_tokens'"),
        ({"budget": 3.0}, "of what"),
        ({"budget_by": "updates", "budget": -1.0}, "above 0"),
        ({"metric": "pass@"}, "unknown metric"),
        ({"metric": "pass@0"}, "unknown metric"),
    ],
)
def test_wrong_budgets_and_metrics_are_explained(con, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(CompareError, match=says):
        compare(con, plan="one", **arguments)


# --- measures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("metric", "k"), [("pass@2", 2), ("pass^3", 3), ("pass@4", 4)])
def test_pass_at_k_of_a_table(con, metric: str, k: int) -> None:
    function = statistics.pass_at_k if "@" in metric else statistics.pass_hat_k
    row = compare(con, plan="one", metric=metric).rows[1]
    passed = np.array([truth(ONE, ONE.cells[0], seed, 20).sum(1) for seed in ONE.seeds])
    values = np.vectorize(lambda c: function(4, int(c), k))(passed)
    assert row.mean == pytest.approx(values.mean(), abs=1e-12)
    order = sorted(range(24), key=lambda p: f"p{p}")  # the table sorts problems by id
    expected = statistics.seed_interval(values[:, order])
    assert row.interval == expected


def test_maj_at_k_of_a_table(con) -> None:
    """The factory's wrong answers are all different texts: each is a voter of its own."""
    row = compare(con, plan="one", metric="maj@4").rows[2]
    passed = np.array([truth(ONE, ONE.cells[1], seed, 20).sum(1) for seed in ONE.seeds])
    values = np.vectorize(lambda c: statistics.majority(int(c), [1] * (4 - int(c))))(passed)
    assert row.mean == pytest.approx(values.mean(), abs=1e-12)
    assert compare(con, plan="one", metric="maj@1").rows[2].mean == pytest.approx(passed.mean() / 4, abs=1e-12)


def test_more_answers_than_there_are_is_no_row(con) -> None:
    table = compare(con, plan="one", metric="pass@5")
    assert not table.rows and {run.reason for run in table.excluded} == {
        "no problem has 5 scored answers, which pass@5 needs"
    }


def test_a_retention_benchmark_is_marked(tmp_path: Path) -> None:
    from tests.evaluation.results import factory

    study = replace(ONE, seeds=(0,), problems=4, cells=ONE.cells[:1])
    write_study(tmp_path, study, ingested=False)
    other = replace(study, benchmark="old")
    name = run_id(study, study.cells[0], 0)
    with Spool(tmp_path / "runs" / name, role="evaluator", attempt=1) as spool:
        factory.write_evaluation(tmp_path, spool, other, name, update=20, accuracy=0.5, seed=0)
    for file in tmp_path.glob("runs/*opsd*/spool/*.jsonl"):
        file.write_text(file.read_text().replace('"spec":{', '"spec":{"evaluation":{"retention":["old"]},'))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con)
    assert {(row.benchmark, row.is_retention) for row in table.rows} == {("addition", False), ("old", True)}
    assert "old (retention)" in to_markdown(table)


# --- differences ---------------------------------------------------------------------------------------------------


def test_only_what_differs_is_shown_nested(con) -> None:
    found = differences(con, "one-opsd-0", "one-grpo-1")
    assert found.to_dict() == {
        "runs": ["one-opsd-0", "one-grpo-1"],
        "spec": {
            "method": {"name": {"one-opsd-0": "opsd", "one-grpo-1": "grpo"}},
            "seed": {"one-opsd-0": 0, "one-grpo-1": 1},
        },
        "provenance": {},
    }


def test_fields_of_one_side_and_of_another_kind() -> None:
    tree = difference({"a": {"b": 1, "c": [1]}, "d": None, "e": 1}, {"a": {"b": 1, "c": [2]}, "e": {"f": 1}})
    assert tree == {"a": {"c": Sides((([1],), ([2],)))}, "d": Sides(((None,), ())), "e": Sides(((1,), ({"f": 1},)))}
    assert (tree["d"].text(0), tree["d"].text(1)) == ("null", "–")


def test_a_run_resumed_with_tags_keeps_them_when_rebuilt(tmp_path: Path) -> None:
    from evaluation.results.ingest import rebuild

    study = replace(ONE, seeds=(0,), problems=4)
    name = write_run(tmp_path, study, study.cells[0], 0)
    mark(tmp_path, name, "tag", "kept")
    ingest(tmp_path)
    rebuild(tmp_path)
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT tags FROM run_marks").fetchall() == [(["kept"],)]
