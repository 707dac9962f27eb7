"""The table of a study, its pairing, its rules, and what it says of runs that are not in it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from evaluation import statistics
from evaluation.results.compare import compare
from evaluation.results.curves import learning_curves, seed_curves
from evaluation.results.ingest import ingest
from evaluation.results.plans import CompareError
from evaluation.results.records import PlanCell, RunEvent
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.tables import footnotes, render, to_csv, to_markdown
from tests.evaluation.results.factory import (
    CELLS,
    Cell,
    Study,
    base_run_id,
    correct,
    cost_at,
    run_id,
    write_base,
    write_run,
    write_study,
)

STUDY = Study(problems=40)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory):
    store = tmp_path_factory.mktemp("store")
    hints = (Cell("OPSD, a hint", "opsd", 0.6), Cell("OPSD, none", "opsd", 0.5))
    write_study(store, Study(plan="demo-hints", cells=hints, seeds=(0,), problems=4), ingested=False)
    write_study(store, STUDY)
    with open_snapshot(store) as connection:
        yield connection


def truth(study: Study, cell: Cell) -> np.ndarray:
    """[seeds, problems] shares of right answers, from the factory's draws and not from the store."""
    return np.array([correct(study, run_id(study, cell, s), cell.final_accuracy, 20, s).mean(1) for s in study.seeds])


def bounds(interval: statistics.Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def base_truth(study: Study) -> np.ndarray:
    return correct(study, base_run_id(study), study.base_accuracy, 0, 0).mean(1)


def test_rows_in_the_plans_order_with_everything_counted(con) -> None:
    table = compare(con)
    assert (table.plan, table.plan_hash, table.baseline, table.metric, table.split) == (
        "demo",
        "edition-1",
        "Base",
        "accuracy",
        "test",
    )
    assert [row.label for row in table.rows] == ["Base", *[cell.label for cell in CELLS]]
    assert [row.is_baseline for row in table.rows] == [True, False, False, False, False]
    assert [row.is_control for row in table.rows] == [False, False, False, False, True]
    assert table.excluded == ()
    for row, cell in zip(table.rows[1:], CELLS, strict=True):
        expected = truth(STUDY, cell)
        assert row.mean == pytest.approx(expected.mean(), abs=1e-12)
        assert [seed.value for seed in row.seeds] == pytest.approx(expected.mean(1).tolist(), abs=1e-12)
        assert [seed.seed for seed in row.seeds] == [0, 1, 2] and {seed.update for seed in row.seeds} == {20}
        assert (row.n_seeds, row.n_planned, row.n_problems, row.n_pairs, row.n_paired_problems) == (3, 3, 40, 3, 40)
        assert row.unscored_rate == 0.0
        assert row.cost == pytest.approx(cost_at(STUDY, 20))


def test_intervals_and_tests_are_those_of_the_statistics(con) -> None:
    table = compare(con)
    p_values = []
    order = sorted(range(40), key=lambda p: f"p{p}")  # the table sorts problems by id
    for row, cell in zip(table.rows[1:], CELLS, strict=True):
        values = truth(STUDY, cell)[:, order]
        assert bounds(row.interval) == pytest.approx(bounds(statistics.seed_interval(values)), abs=1e-12)
        test = statistics.paired_test(values - base_truth(STUDY)[order])
        assert row.delta == pytest.approx(test.difference, abs=1e-12)
        assert row.p_value == pytest.approx(test.p_value, abs=2e-4)
        assert bounds(row.delta_interval) == pytest.approx(bounds(test.interval), abs=1e-12)
        assert row.rule == test.rule
        p_values.append(row.p_value)
    assert [row.p_holm for row in table.rows[1:]] == pytest.approx(statistics.holm(p_values))
    opsd, control = table.rows[3], table.rows[4]
    assert opsd.p_holm is not None and opsd.p_holm < 0.001 and (opsd.delta or 0) > 0.3
    assert (control.delta or 0) < 0


def test_another_baseline_is_paired_seed_by_seed(con) -> None:
    table = compare(con, baseline="grpo")
    assert table.baseline == "GRPO"
    opsd = table.rows[3]
    assert opsd.delta == pytest.approx((truth(STUDY, CELLS[2]) - truth(STUDY, CELLS[1])).mean(), abs=1e-12)
    base = table.rows[0]
    assert base.n_pairs == 1  # the untrained model was run with seed 0 alone
    assert base.delta == pytest.approx((base_truth(STUDY) - truth(STUDY, CELLS[1])[0]).mean(), abs=1e-12)
    assert base.delta_interval is None


def test_pairs_are_of_one_seed(tmp_path: Path) -> None:
    """Swapping the seeds of the baseline changes the test though it changes no mean."""
    study = Study(problems=40, cells=(Cell("A", "a", 0.5), Cell("B", "b", 0.5)))
    write_study(tmp_path, study)
    with open_snapshot(tmp_path) as con:
        row = compare(con, baseline="B").rows[1]
    assert row.label == "A"
    order = sorted(range(40), key=lambda p: f"p{p}")
    a, b = (truth(study, cell)[:, order] for cell in study.cells)
    assert row.p_value == statistics.paired_test(a - b).p_value
    assert row.p_value != statistics.paired_test(a - b[::-1]).p_value


@pytest.mark.parametrize("baseline", [None, "base", "BASE", "Base"])
def test_the_untrained_model_is_the_baseline_unless_another_is_named(con, baseline: str | None) -> None:
    assert compare(con, baseline=baseline) == compare(con, baseline="Base")


def test_a_method_that_several_cells_have_is_no_baseline(con) -> None:
    with pytest.raises(CompareError, match="baseline 'opsd' may be any of") as error:
        compare(con, baseline="Opsd", plan="demo-hints")
    assert "'OPSD, a hint', 'OPSD, none': name one of them" in str(error.value)
    assert compare(con, baseline="OPSD, none", plan="demo-hints").baseline == "OPSD, none"
    assert compare(con, baseline="opsd").baseline == "OPSD"  # one label is called so, whatever has the method


def test_a_plan_without_the_untrained_model_has_no_differences_until_a_baseline_is_named(tmp_path: Path) -> None:
    study = Study(problems=24, cells=CELLS[:2])
    for cell in study.cells:
        for seed in study.seeds:
            write_run(tmp_path, study, cell, seed)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con)
        assert table.baseline is None
        assert [(row.label, row.is_baseline, row.delta, row.p_holm) for row in table.rows] == [
            ("SFT", False, None, None),
            ("GRPO", False, None, None),
        ]
        with pytest.raises(CompareError, match="unknown baseline 'base'"):
            compare(con, baseline="base")
        named = compare(con, baseline="grpo").rows
    assert "No baseline: name one with --baseline." in footnotes(table) and "None" not in to_markdown(table)
    lines = [line.split(" | ") for line in to_markdown(table).splitlines() if line.startswith("| ")]
    place = lines[0].index("Δ")
    assert [line[place : place + 2] for line in lines] == [["Δ", "p"], ["--:", "--:"], ["–", "–"], ["–", "–"]]
    assert next(csv.DictReader(io.StringIO(to_csv(table))))["baseline"] == ""
    assert named[0].delta == pytest.approx((truth(study, CELLS[0]) - truth(study, CELLS[1])).mean(), abs=1e-12)


def test_a_run_is_paired_with_its_own_untrained_model_and_no_other(tmp_path: Path) -> None:
    """The run's own base run failed; another base run of the same plan and seed is no stand-in."""
    study = Study(problems=24, cells=(Cell("OPSD", "opsd", 0.8),))
    other = replace(study, plan="other")
    for base in (study, other):
        write_base(tmp_path, base)
    for seed in study.seeds:
        write_run(tmp_path, study, study.cells[0], seed)
    with Spool(tmp_path / "runs" / base_run_id(study), role="driver", attempt=2) as spool:
        spool.append(RunEvent(base_run_id(study), 4, "failed", 1.0, "lost"))
    with Spool(tmp_path / "runs" / "cells", role="driver", attempt=1) as spool:
        model = {"model": "other"}
        spool.append(PlanCell(base_run_id(other), "demo", study.plan_hash, 0, "Base", False, None, {}, model, ()))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con, plan="demo")
    assert [(row.label, row.is_baseline) for row in table.rows] == [("Base", True), ("OPSD", False)]
    assert (table.rows[1].n_pairs, table.rows[1].delta) == (0, None)


def test_a_baseline_on_an_axis_is_paired_at_the_same_place(tmp_path: Path) -> None:
    """GRPO and OPSD on two models: each OPSD is measured against GRPO on its own model, or against nothing."""
    cells = [(label, model) for label in ("GRPO", "OPSD") for model in ("a", "b")]
    with Spool(tmp_path / "runs" / "cells", role="driver", attempt=1) as spool:
        for position, (label, model) in enumerate(cells):
            failed = (label, model) == ("GRPO", "b")
            cell = Cell(label, label.lower(), 0.5, statuses=("running", "failed") if failed else ("running", "done"))
            own = Study(plan=f"on-{model}", problems=24, cells=(cell,))
            for seed in own.seeds:
                name = write_run(tmp_path, own, cell, seed)
                spool.append(PlanCell(name, "both", "h", position, label, False, None, {}, {"model": model}, ()))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        rows = compare(con, plan="both", baseline="GRPO").rows
    found = {(row.label, json.loads(row.axes)["model"]): row for row in rows}
    assert set(found) == {("GRPO", "a"), ("OPSD", "a"), ("OPSD", "b")}
    assert (found["OPSD", "a"].n_pairs, found["OPSD", "b"].n_pairs, found["OPSD", "b"].delta) == (3, 0, None)


def test_a_control_that_is_always_wrong_has_wilsons_interval(tmp_path: Path) -> None:
    study = Study(problems=24, cells=(Cell("never", "a", 0.0, is_control=True), Cell("always", "b", 1.0)))
    write_study(tmp_path, study)
    with open_snapshot(tmp_path) as con:
        table = compare(con)
        curves = learning_curves(con, None, "addition")
    z = 1.959963984540054
    reach = z * z / (24 + z * z)  # Wilson's other end for 0 of n
    never, always = table.rows[1:]
    assert bounds(never.interval) == (0.0, pytest.approx(reach)) and bounds(always.interval) == (
        pytest.approx(1 - reach),
        1.0,
    )
    assert [row.is_unanimous for row in table.rows] == [False, True, True]
    (note,) = [note for note in footnotes(table) if "Wilson" in note]
    assert note.endswith("is right: never, always.")
    end = curves[(curves["label"] == "never") & (curves["update"] == 20)].iloc[0]
    assert (end["low"], end["high"]) == (0.0, pytest.approx(reach))


def test_rules_say_what_a_p_value_leaves_out(con) -> None:
    assert "p is approximate when few seeds lie far apart" in "\n".join(footnotes(compare(con)))
    few = statistics.paired_test(np.ones((3, 5)))
    assert few.rule.endswith("its p says nothing of other seeds")


def test_the_same_table_every_time(con) -> None:
    assert compare(con) == compare(con)
    assert json.loads(json.dumps(compare(con).to_dict()))["rows"][1]["seeds"][0]["seed"] == 0


def test_runs_that_are_missing_failed_or_partial_are_listed(tmp_path: Path) -> None:
    study = Study(problems=10)
    failed = Cell("Failed", "grpo", 0.5, statuses=("queued", "running", "failed"))
    queued = Cell("Queued", "sft", 0.5, statuses=("queued",))
    study = replace(study, cells=(Cell("OPSD", "opsd", 0.8), failed, queued))
    write_base(tmp_path, study)
    for seed in (0, 1):
        write_run(tmp_path, study, study.cells[0], seed)
    write_run(tmp_path, study, failed, 0)
    write_run(tmp_path, replace(study, every=100), queued, 0, updates=1)
    write_run(tmp_path, replace(study, every=100), study.cells[0], 2)  # done, but never evaluated
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con)
    assert [(row.label, row.n_seeds, row.n_planned) for row in table.rows] == [("Base", 1, 1), ("OPSD", 2, 3)]
    assert [(run.label, run.seed, run.reason) for run in table.excluded] == [
        ("OPSD", 2, "no whole evaluation on addition, test split"),
        ("Failed", 0, "failed"),
        ("Queued", 0, "not finished (queued)"),
    ]
    row = table.rows[1]
    assert row.interval is None and row.seed_t_interval is None and row.delta_interval is None
    assert row.p_value is not None and row.rule is not None
    assert row.rule.startswith("exact sign-flip test over 10") and "no interval below 3 seeds" in row.rule
    text = "\n".join(footnotes(table))
    assert "Not in the table: Failed, seed 0 (addition): failed" in text and "OPSD, seed 2" in text


def test_unscored_answers_are_excluded_counted_and_flagged(tmp_path: Path) -> None:
    study = Study(problems=30, unscored_rate=0.1)
    write_study(tmp_path, study)
    with open_snapshot(tmp_path) as con:
        table = compare(con)
    row = table.rows[3]
    assert 0.05 < row.unscored_rate < 0.15
    assert row.mean == pytest.approx(truth(study, CELLS[2]).mean(), abs=0.05)
    assert any("could not be scored: Base, SFT, GRPO, OPSD" in note for note in footnotes(table))


def test_several_benchmarks_are_corrected_together(tmp_path: Path) -> None:
    cells = (Cell("A", "a", 0.45), Cell("B", "b", 0.4))
    for benchmark in ("addition", "gsm8k"):
        write_study(tmp_path, Study(cells=cells, benchmark=benchmark, problems=30), ingested=False)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        both = compare(con)
        one = compare(con, benchmark="gsm8k")
    assert [(row.benchmark, row.label) for row in both.rows] == [
        (benchmark, label) for benchmark in ("addition", "gsm8k") for label in ("Base", "A", "B")
    ]
    p_values = [row.p_value for row in both.rows]
    assert [row.p_holm for row in both.rows] == statistics.holm(p_values)
    assert {row.benchmark for row in one.rows} == {"gsm8k"}
    assert "benchmark" in to_markdown(both) and "| benchmark |" not in to_markdown(one)


def test_cells_on_an_axis_are_rows_of_their_own(tmp_path: Path) -> None:
    cells = tuple(Cell("OPSD", "opsd", 0.3 + beta, axes={"beta": beta}) for beta in (0.1, 0.5))
    study = Study(cells=cells, problems=12)
    write_base(tmp_path, study)
    names = []
    for index, cell in enumerate(cells):  # the factory names runs by label: give each value its own plan's runs
        own = replace(study, plan=f"beta{index}", cells=(cell,))
        names += [(write_run(tmp_path, own, cell, seed), cell) for seed in study.seeds]
    with Spool(tmp_path / "runs" / "cells", role="driver", attempt=1) as spool:
        for name, cell in names:
            spool.append(PlanCell(name, "sweep", "h", 1, "OPSD", False, base_run_id(study), {}, dict(cell.axes), ()))
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        table = compare(con, plan="sweep", baseline="OPSD")
    assert [(row.label, row.axes, row.n_seeds) for row in table.rows] == [
        ("OPSD", '{"beta":0.1}', 3),
        ("OPSD", '{"beta":0.5}', 3),
    ]
    assert '{"beta":0.1}' in to_markdown(table)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"plan": "dmo"}, r"unknown plan 'dmo'; did you mean 'demo'\?"),
        ({"benchmark": "additon"}, r"did you mean 'addition'\?"),
        ({"split": "validation"}, r"no finished evaluation on the validation split yet.*test"),
        ({"baseline": "OPDS"}, r"unknown baseline 'OPDS'; did you mean 'OPSD'\?"),
        ({"metric": "acuracy"}, r"unknown metric 'acuracy'; did you mean 'accuracy'\?"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest_right_one(con, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(CompareError, match=says) as error:
        compare(con, **arguments)
    assert "\n" not in str(error.value)


def test_an_empty_store_has_nothing_to_compare(tmp_path: Path) -> None:
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con, pytest.raises(CompareError, match="run `stillroom demo`"):
        compare(con)


def test_other_metrics(con) -> None:
    assert all(row.mean == 1.0 for row in compare(con, metric="format_rate").rows)
    lenient = compare(con, metric="lenient_accuracy").rows[3].mean
    assert lenient == pytest.approx(compare(con).rows[3].mean)


# --- tables ----------------------------------------------------------------------------------------------------------


def printed(table, width: int, **options: bool) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render(table, **options))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_terminal_table_shows_rows_intervals_and_rules(con) -> None:
    table = compare(con)
    text = printed(table, 130)
    opsd = next(line for line in text.splitlines() if "│ OPSD  " in line)
    assert f"{100 * table.rows[3].mean:.1f} [{100 * bounds(table.rows[3].interval)[0]:.1f}," in opsd
    assert "<.001*" in opsd and "20.0k" in opsd and " 10 " in opsd
    assert "(control)" in text
    assert "[low, high]: 95 % interval over seeds and problems" in text  # square brackets are not taken as markup
    assert "teacher tokens" not in text and "teacher tokens" in printed(table, 200, wide=True)
    assert all(len(line) <= 100 for line in printed(table, 100).splitlines())


def test_labels_are_never_markup(tmp_path: Path) -> None:
    write_study(tmp_path, Study(cells=(Cell("[red]x[/red] | y", "a", 0.5),), problems=6))
    with open_snapshot(tmp_path) as con:
        table = compare(con)
    assert "[red]x[/red] | y" in printed(table, 160)
    assert "[red]x[/red] \\| y" in to_markdown(table)


def test_two_seeds_are_dots(tmp_path: Path) -> None:
    study = write_study(tmp_path, Study(cells=CELLS[:1], seeds=(0, 1), problems=25))
    with open_snapshot(tmp_path) as con:
        table = compare(con)
    first, second = (100 * value for value in truth(study, CELLS[0]).mean(1))
    assert f"{first:.1f} · {second:.1f}" in to_markdown(table)


def test_csv_holds_every_number_unrounded(con) -> None:
    table = compare(con)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == 5
    for record, row in zip(rows, table.rows, strict=True):
        assert record["label"] == row.label and float(record["mean"]) == row.mean
        assert record["low"] == ("" if row.interval is None else repr(row.interval.low))
        assert record["p_holm"] == ("" if row.p_holm is None else repr(row.p_holm))
        values = dict(pair.split(":") for pair in record["seed_values"].split())
        assert [float(values[str(seed.seed)]) for seed in row.seeds] == [seed.value for seed in row.seeds]


# --- curves ----------------------------------------------------------------------------------------------------------


def test_curves_mean_over_seeds_with_a_band(con) -> None:
    curves = learning_curves(con, "demo", "addition")
    assert list(curves["label"].drop_duplicates()) == ["Base", *[cell.label for cell in CELLS]]
    opsd = curves[curves["label"] == "OPSD"]
    assert list(opsd["update"]) == [0, 10, 20] and list(opsd["n_seeds"]) == [3, 3, 3]
    assert list(opsd["from_base"]) == [True, False, False]
    assert list(opsd["rollout_tokens"]) == [0, 10_000, 20_000]
    end = opsd.iloc[2]
    values = truth(STUDY, CELLS[2])
    assert end["mean"] == pytest.approx(values.mean(), abs=1e-12)
    assert end["low"] < values.mean() < end["high"]
    table = next(row for row in compare(con).rows if row.label == "OPSD")
    assert (end["low"], end["high"]) == pytest.approx(bounds(table.interval), abs=0.02)
    base = curves[curves["label"] == "Base"].iloc[0]
    assert base["mean"] == pytest.approx(base_truth(STUDY).mean()) and np.isnan(base["low"])


def test_seed_curves_are_the_dots(con) -> None:
    dots = seed_curves(con, "demo", "addition")
    end = dots[(dots["label"] == "OPSD") & (dots["update"] == 20)]
    assert list(end["seed"]) == [0, 1, 2]
    assert list(end["accuracy"]) == pytest.approx(truth(STUDY, CELLS[2]).mean(1).tolist(), abs=1e-12)
    assert len(dots) == 1 + 4 * 3 * 3


def test_curves_of_running_runs_count_as_far_as_they_got(tmp_path: Path) -> None:
    study = Study(cells=(Cell("OPSD", "opsd", 0.8, statuses=("running",)),), problems=8)
    write_base(tmp_path, study)
    for seed, updates in ((0, 20), (1, 20), (2, 10)):
        write_run(tmp_path, study, study.cells[0], seed, updates=updates)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        curves = learning_curves(con, None, "addition")
        opsd = curves[curves["label"] == "OPSD"]
        assert list(zip(opsd["update"], opsd["n_seeds"], opsd["n_planned"], strict=True)) == [
            (0, 3, 3),
            (10, 3, 3),
            (20, 2, 3),
        ]
        assert np.isnan(opsd.iloc[2]["low"]) and not np.isnan(opsd.iloc[2]["mean"])
        with pytest.raises(CompareError, match="unknown metric"):
            learning_curves(con, None, "addition", metric="loss")
        assert learning_curves(con, None, "no such benchmark").empty
