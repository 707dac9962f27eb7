"""The table of benchmarks, the page of one, and docs/benchmarks.md against the registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.benchmarks import BENCHMARKS
from flows.benchmark_pages import benchmark_page, benchmarks_document
from flows.catalogue import benchmark_rows
from flows.cli.entry import main


def test_the_document_is_the_registrys(repository_root: Path) -> None:
    shipped = (repository_root / "docs" / "benchmarks.md").read_text()
    assert shipped == benchmarks_document(), "run `stillroom benchmarks --docs > docs/benchmarks.md`"
    assert all(f"`{name}`" in shipped for name in BENCHMARKS)


def test_every_benchmark_says_what_it_is() -> None:
    for benchmark in BENCHMARKS.values():
        assert benchmark.version and benchmark.licence and benchmark.source, benchmark.name
        if benchmark.files:
            assert benchmark.get and benchmark.grading and benchmark.kind != "synthetic", benchmark.name
        for score in (*benchmark.published, *benchmark.reproduced):
            assert 0 < score.percent <= 100 and score.model and score.metric and score.source


def test_the_table_says_which_files_are_missing(tmp_path: Path) -> None:
    rows = {row["benchmark"]: row for row in benchmark_rows(tmp_path)}
    assert rows["aime24"]["data"] == "missing: aime24_test.jsonl"
    assert rows["rg_gcd"]["data"] == "procedural"
    assert "more" in rows["bfcl"]["data"] and "rg_sokoban" not in rows
    (tmp_path / "aime24_test.jsonl").write_text('{"problem": "What?", "answer": "033"}\n')
    rows = {row["benchmark"]: row for row in benchmark_rows(tmp_path)}
    assert rows["aime24"]["data"] == "here"


def test_a_page_holds_sizes_an_example_and_the_numbers(tmp_path: Path) -> None:
    absent = benchmark_page(BENCHMARKS["aime24"], tmp_path)
    assert absent["splits"] == {"test": None} and absent["example"] is None
    (tmp_path / "aime24_test.jsonl").write_text('{"problem": "What?", "answer": "033"}\n')
    page = benchmark_page(BENCHMARKS["aime24"], tmp_path)
    assert page["splits"] == {"test": 1} and page["example_answer"] == "33"
    assert page["example"][0]["content"].startswith("What?")
    assert {"model": "Qwen3-1.7B, thinking", "metric": "avg@12", "percent": 51.5, "source": "2601.18734 (README)"} in (
        page["published"]
    )


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["benchmarks", *arguments])
    return int(end.value.code or 0)


def test_the_command_prints_a_page_and_refuses_names_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("addition", "--json") == 0
    assert json.loads(capsys.readouterr().out)["example"][0]["role"] == "user"
    assert command("addition") == 0
    assert "Three-digit addition" in capsys.readouterr().out
    assert command("additon") != 0
    assert "did you mean 'addition'?" in capsys.readouterr().err
    assert command("rg_puzzle24") != 0
    assert "its scorer takes any four numbers" in capsys.readouterr().err
