"""Commands that ask a store: what they print, write and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.statistics import detectable, spread_of
from flows.cli import main
from tests.evaluation.results.factory import Cell, Study, base_run_id, correct, run_id, write_study

STUDY = Study(problems=24, cells=(Cell("OPSD", "opsd", 0.8), Cell("GRPO", "grpo", 0.5)))
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    write_study(path, STUDY)
    return path


@pytest.fixture
def stillroom(store: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--store", str(store)])
        output = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, output.out, output.err

    return command


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["compare", "--format", "latex"], "% needs"),
        (["compare", "--format", "csv"], "plan,benchmark"),
        (["compare", "demo", "--format", "markdown", "--budget-by", "seconds"], "**demo: accuracy"),
        (["compare", "--runs", "demo-opsd-0", "--json"], "{"),
        (["query", "select 1 as a", "--csv"], "a\n1\n"),
        (["power", "--json"], "["),
    ],
)
def test_forms(stillroom: Command, arguments: list[str], starts: str) -> None:
    code, output, _ = stillroom(*arguments)
    assert code == 0 and output.startswith(starts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "--format", "word"], "none of table, markdown, csv, json, latex"),
        (["compare", "--bold-best"], "--format latex"),
        (["compare", "--cost", "--where", "seed=1"], "show one plan whole"),
        (["compare", "--where", "sead=1"], "did you mean 'seed'"),
        (["compare", "--budget-by", "token"], "unknown 'token'"),
        (["diff", "demo-opsd-0", "nothing"], "no run 'nothing'"),
        (["tag"], "name at least one run"),
        (["tag", "demo-opsd-0", "--add", "a", "--remove", "a"], "different tags"),
        (["tag", "demo-opsd"], "may be any of 3"),
        (["note", "demo-opsd-0", " "], "empty"),
        (["power", "--delta", "2"], "a share above 0"),
        (["power", "--problems", "0"], "count from 1"),
        (["query", "select 1", "--csv", "--parquet", "x.parquet"], "leave --json and --csv out"),
        (["query", "drop table runs", "--parquet", "x.parquet"], "only SELECT can be run here"),
        (["query", "select 1", "--parquet", "no/where.parquet"], "there is no folder"),
        (["export-model", "nothing", "--to", "x"], "no run 'nothing' in this store"),
        (["reproduce", "nothing"], "no run 'nothing' in this store"),
    ],
)
def test_refusals_are_one_line(
    stillroom: Command, arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, complaint = stillroom(*arguments)
    assert code == 2 and says in complaint and complaint.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_tags_notes_and_archiving_change_what_is_compared(stillroom: Command) -> None:
    assert stillroom("tag", "demo-opsd-0", "demo-grpo-0", "--add", "paper")[0] == 0
    assert stillroom("note", "demo-opsd-0", "the first")[0] == 0
    assert stillroom("archive", "demo-opsd-1")[0] == 0
    rows = json.loads(stillroom("tag", "demo-opsd-0", "demo-opsd-1", "--json")[1])
    assert rows == [
        {"run_id": "demo-opsd-0", "tags": ["paper"], "notes": ["the first"], "is_archived": False},
        {"run_id": "demo-opsd-1", "tags": [], "notes": [], "is_archived": True},
    ]
    table = json.loads(stillroom("compare", "--tag", "paper", "--json")[1])
    assert [(row["label"], row["n_seeds"]) for row in table["rows"]] == [("Base", 1), ("OPSD", 1), ("GRPO", 1)]
    table = json.loads(stillroom("compare", "--json")[1])
    assert [(row["label"], row["n_seeds"]) for row in table["rows"]] == [("Base", 1), ("OPSD", 2), ("GRPO", 3)]
    assert [run["reason"] for run in table["excluded"]] == ["archived"]
    stillroom("archive", "demo-opsd-1", "--undo")
    stillroom("tag", "demo-opsd-0", "demo-grpo-0", "--remove", "paper")
    stillroom("note", "demo-opsd-0", "the first", "--remove")
    rows = json.loads(stillroom("tag", "demo-opsd-0", "demo-opsd-1", "--json")[1])
    assert [(row["tags"], row["notes"], row["is_archived"]) for row in rows] == [([], [], False)] * 2


def test_power_of_a_plan_is_that_of_its_paired_differences(stillroom: Command) -> None:
    import numpy as np

    rows = json.loads(stillroom("power", "demo", "--json")[1])
    base = correct(STUDY, base_run_id(STUDY), STUDY.base_accuracy, 0, 0).mean(1)
    for row, cell in zip(rows, STUDY.cells, strict=True):
        runs = [correct(STUDY, run_id(STUDY, cell, s), cell.final_accuracy, 20, s).mean(1) for s in STUDY.seeds]
        spread = spread_of(np.array(runs) - base)
        assert row["detectable"] == pytest.approx(detectable(spread, 3, 24), abs=1e-12)
        assert row["variance_of_problems"] == pytest.approx(spread.problems, abs=1e-12)


def test_a_file_of_rows(stillroom: Command, tmp_path: Path) -> None:
    from pyarrow import parquet

    code, output, _ = stillroom("query", "select label from final_scores", "--parquet", str(tmp_path / "x.parquet"))
    assert code == 0 and output.startswith("7 rows in")
    assert parquet.read_table(tmp_path / "x.parquet").num_rows == 7


def test_diff_shows_nothing_that_is_equal(stillroom: Command) -> None:
    output = stillroom("diff", "demo-opsd-0", "demo-opsd-1")[1]
    assert "seed" in output and "method" not in output and "provenance: no difference" in output
