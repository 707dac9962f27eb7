"""Tuning trials and full costs: beside the plan's table, never in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from rich.console import Console

from evaluation.results.compare import compare
from evaluation.results.plans import CompareError
from evaluation.results.snapshot import open_snapshot
from evaluation.results.trials import COSTS, TrialRow, costs_sheet, plan_costs, trials_sheet, tuning_trials
from tests.evaluation.results.factory import (
    CELLS,
    Study,
    correct,
    cost_at,
    run_id,
    write_run,
    write_study,
    write_tuned_study,
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Study, Study]]:
    store = tmp_path_factory.mktemp("store")
    write_study(store, Study(plan="untuned", problems=4), ingested=False)
    study, trials = write_tuned_study(store)
    with open_snapshot(store) as con:
        yield con, study, trials


def test_trials_with_their_scores_and_the_choice(tuned: tuple[duckdb.DuckDBPyConnection, Study, Study]) -> None:
    con, _, trials = tuned
    name, rows = tuning_trials(con)
    assert name == "demo"
    assert [(row.label, row.values, row.is_chosen) for row in rows] == [
        ("OPSD", {"learning_rate": 1e-5}, False),
        ("OPSD", {"learning_rate": 2e-4}, True),
        ("OPSD", {"learning_rate": 1e-3}, False),
    ]
    for row, cell in zip(rows, trials.cells, strict=True):
        expected = [
            correct(trials, run_id(trials, cell, seed), cell.final_accuracy, 20, seed).mean() for seed in trials.seeds
        ]
        assert row.accuracy == pytest.approx(np.mean(expected), abs=1e-12)
        assert (row.n_seeds, row.n_done, row.split, row.status) == (2, 2, "validation", "done")
        assert row.run_ids == tuple(run_id(trials, cell, seed) for seed in trials.seeds)


def test_trials_are_in_no_table_of_the_plan(tuned: tuple[duckdb.DuckDBPyConnection, Study, Study]) -> None:
    con, _, trials = tuned
    table = compare(con)
    assert table.plan == "demo", "the plan recorded last, its trials aside"
    assert [row.label for row in table.rows] == ["Base", *[cell.label for cell in CELLS]]
    of_trials = {run_id(trials, cell, seed) for cell in trials.cells for seed in trials.seeds}
    for view in ("plan_cells", "final_scores", "curves", "ablations", "run_labels"):
        runs = {run for (run,) in con.execute(f"SELECT run_id FROM {view} WHERE plan = 'demo'").fetchall()}
        assert runs and not runs & of_trials, view
    with pytest.raises(CompareError, match="no finished evaluation on the validation split"):
        compare(con, plan="demo", split="validation")
    trained = compare(con, plan="demo:tuning", split="validation")
    assert [row.label for row in trained.rows] == [cell.label for cell in trials.cells]


def test_full_costs_are_sums_with_the_trials_apart(tuned: tuple[duckdb.DuckDBPyConnection, Study, Study]) -> None:
    con, study, _ = tuned
    name, rows = plan_costs(con, "demo")
    assert name == "demo"
    assert [(row.label, row.is_tuning, row.runs) for row in rows] == [
        ("Base", False, 1),
        ("SFT", False, 3),
        ("GRPO", False, 3),
        ("OPSD", False, 3),
        ("OPSD", True, 6),
        (CELLS[3].label, False, 3),
    ]
    for row in rows[1:]:
        for key in (*COSTS, "flop", "wall_seconds"):
            assert getattr(row, key) == pytest.approx(row.runs * cost_at(study, study.updates)[key])
    assert rows[0].rollout_tokens == rows[0].auxiliary_tokens == 0
    assert {row.is_tuning for row in plan_costs(con, "untuned")[1]} == {False}


def test_a_plan_without_trials_is_told_so(tuned: tuple[duckdb.DuckDBPyConnection, Study, Study]) -> None:
    con, _, _ = tuned
    with pytest.raises(CompareError, match="plan 'untuned' has no tuning trials"):
        tuning_trials(con, "untuned")
    with pytest.raises(CompareError, match="unknown plan 'dem'; did you mean 'demo'"):
        tuning_trials(con, "dem")


def test_trials_of_an_older_edition_are_left_out(tmp_path: Path) -> None:
    study, _ = write_tuned_study(tmp_path / "store")
    write_study(tmp_path / "store", replace(study, plan_hash="edition-2", cells=CELLS))
    with open_snapshot(tmp_path / "store") as con:
        with pytest.raises(CompareError, match="no tuning trials"):
            tuning_trials(con, "demo")
        assert {row.is_tuning for row in plan_costs(con, "demo")[1]} == {False}


def test_a_failed_trial_has_no_score_and_its_error(tmp_path: Path) -> None:
    study, trials = write_tuned_study(tmp_path / "store")
    failed = replace(trials.cells[2], statuses=("queued", "running", "failed"))
    again = replace(trials, cells=(*trials.cells[:2], failed))
    write_run(tmp_path / "store", again, failed, 101, attempt=2, base=False)
    write_study(tmp_path / "store", study)
    with open_snapshot(tmp_path / "store") as con:
        row = tuning_trials(con, "demo")[1][2]
        sheet = trials_sheet(*tuning_trials(con, "demo"))
    assert (row.status, row.n_done, row.accuracy, row.error) == ("failed", 1, None, "the trainer ran out of memory")
    assert any("the trainer ran out of memory" in note for note in sheet.notes)


def row_of(rate: float, chosen: bool, label: str = "A") -> TrialRow:
    return TrialRow(label, {"learning_rate": rate}, 1, 1, "validation", 0.5, "done", chosen, None, (f"run-{rate}",))


@pytest.mark.parametrize(
    ("rates", "chosen", "note"),
    [
        ((1, 2, 3), 1, "learning_rate=1 is the smallest value tried"),
        ((1, 2, 3), 3, "learning_rate=3 is the largest value tried"),
        ((1, 2, 3), 2, None),
        ((1, 2), 2, None),
    ],
)
def test_a_choice_at_the_edge_is_said(rates: tuple[float, ...], chosen: float, note: str | None) -> None:
    rows = [*(row_of(rate, rate == chosen) for rate in rates), row_of(9, False, "B"), row_of(0, False, "B")]
    found = [text for text in trials_sheet("p", rows).notes if "At the edge" in text]
    assert len(found) == (note is not None)
    assert note is None or note in found[0]


def test_every_form_holds_every_row(tuned: tuple[duckdb.DuckDBPyConnection, Study, Study]) -> None:
    con, _, _ = tuned
    for sheet in (trials_sheet(*tuning_trials(con, "demo")), costs_sheet(*plan_costs(con, "demo"))):
        assert len(list(csv.DictReader(io.StringIO(sheet.to_csv())))) == len(sheet.records) == len(sheet.cells)
        lines = [line for line in sheet.to_markdown().splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(sheet.cells)
        assert len({line.count("|") for line in lines}) == 1
        console = Console(width=150, record=True, file=io.StringIO())
        console.print(sheet.render())
        text = console.export_text()
        assert all(row[0] in text for row in sheet.cells)
