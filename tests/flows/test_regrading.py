"""`stillroom regrade`: verdicts follow the grader, old grades stay, nothing is generated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import Answer
from evaluation.problems import Grade, Problem
from evaluation.recording import close_evaluation, record_answers
from evaluation.results.ingest import ingest
from evaluation.results.records import RunEvent, RunRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.samplers.base import Completion
from flows.cli import main

PROBLEMS = ADDITION.load("test", limit=12)


def _text(problem: Problem, index: int) -> str:
    assert problem.solution is not None
    return problem.solution if index % 3 else "no answer"


def _fails_all(problem: Problem, text: str) -> Grade:
    return Grade(verdict="fail", score=0.0, grader="exact_after_marker", version="0")


def _breaks(problem: Problem, text: str) -> Grade:
    return Grade(verdict="not_scored", score=None, grader="exact_after_marker", version="1", error="no sandbox")


def _store(tmp_path: Path, grade: Callable[[Problem, str], Grade], run_id: str = "base-s0-abc") -> Path:
    """A store whose one run was graded by ``grade``."""
    folder = tmp_path / "runs" / run_id
    texts = [_text(problem, index) for index, problem in enumerate(PROBLEMS)]
    answers = [
        Answer(problem.id, 0, 3, Completion((1, 2), (-0.1, -0.2), "stop"), text, grade(problem, text))
        for problem, text in zip(PROBLEMS, texts, strict=True)
    ]
    with Spool(folder, role="driver", attempt=1) as spool:
        spool.append(RunRecord(run_id, "base", "tiny-demo", 0, {}, {}, 0.0))
        record_answers(spool, folder, run_id, 0, ADDITION, "test", PROBLEMS, answers, part=0)
        close_evaluation(spool, run_id, 0, ADDITION, "test", len(PROBLEMS), 1, {}, seconds=1.0)
        spool.append(RunEvent(run_id, 1, "done", 1.0))
    ingest(tmp_path)
    return tmp_path


def _regrade(store: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as exit_:
        main(["regrade", "--benchmark", "addition", "--json", "--store", str(store), *more])
    assert exit_.value.code == 0
    return json.loads(capsys.readouterr().out)


def _accuracy(store: Path) -> list[tuple[Any, ...]]:
    with open_snapshot(store) as snapshot:
        return snapshot.execute("SELECT accuracy, n_unscored FROM scores").fetchall()


def test_an_older_graders_verdicts_are_superseded_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = _store(tmp_path, _fails_all)
    assert _accuracy(store) == [(0.0, 0)]
    before = sorted(file.read_bytes() for file in store.glob("runs/*/samples/*"))

    planned = _regrade(store, capsys, "--dry-run")
    assert planned["changed"] == [{"before": "fail", "now": "pass", "answers": 8}]
    assert planned["recorded"] == 0 and _accuracy(store) == [(0.0, 0)]

    done = _regrade(store, capsys)
    assert (done["answers"], done["runs"], done["recorded"]) == (12, 1, 12)
    assert done["graders"] == ["exact_after_marker 1"] and done["changed"] == planned["changed"]
    assert _accuracy(store) == [(pytest.approx(8 / 12), 0)]
    with open_snapshot(store) as snapshot:
        versions = snapshot.execute("SELECT version, count(*) FROM latest_grades GROUP BY ALL ORDER BY ALL").fetchall()
    assert versions == [("0", 12), ("1", 12)]
    assert sorted(file.read_bytes() for file in store.glob("runs/*/samples/*")) == before

    again = _regrade(store, capsys)
    assert (again["changed"], again["recorded"]) == ([], 0)


def test_answers_that_could_not_be_scored_are_scored_by_the_same_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _store(tmp_path, _breaks)
    assert _accuracy(store) == [(None, 12)]
    done = _regrade(store, capsys, "base-s0")
    assert sum(row["answers"] for row in done["changed"]) == 12
    assert {row["before"] for row in done["changed"]} == {"not_scored"}
    assert _accuracy(store) == [(pytest.approx(8 / 12), 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark", "additon"], "unknown benchmark 'additon'; did you mean 'addition'"),
        (["--benchmark", "chain"], "none of these 1 runs has answers on chain"),
        (["--benchmark", "addition", "grpo"], "no run 'grpo' in this store"),
        (["--benchmark", "addition", "--plan", "demo"], "no run belongs to a plan 'demo'"),
    ],
)
def test_what_cannot_be_graded_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _store(tmp_path, _fails_all)
    with pytest.raises(SystemExit) as exit_:
        main(["regrade", *arguments, "--store", str(store)])
    assert exit_.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_text_that_is_gone_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = _store(tmp_path, _fails_all)
    for file in store.glob("runs/*/samples/*"):
        file.unlink()
    with pytest.raises(SystemExit) as exit_:
        main(["regrade", "--benchmark", "addition", "--store", str(store)])
    assert exit_.value.code == 2
    assert "run base-s0-abc: the texts in samples/answers-000000-addition-test-0000.parquet" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_changed_benchmark_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path, _fails_all)
    fewer: Benchmark = dataclasses.replace(ADDITION, load=lambda split, *, limit=None, root=None: PROBLEMS[1:])
    monkeypatch.setitem(BENCHMARKS, "addition", fewer)
    with pytest.raises(SystemExit):
        main(["regrade", "--benchmark", "addition", "--store", str(store)])
    assert f"has no problem {PROBLEMS[0].id!r} in its test split any more" in " ".join(capsys.readouterr().err.split())


def test_another_version_of_the_benchmark_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path, _fails_all)
    assert _regrade(store, capsys, "--dry-run")["asked_under_versions"] == [ADDITION.version]
    monkeypatch.setitem(BENCHMARKS, "addition", dataclasses.replace(ADDITION, version="99"))
    found = _regrade(store, capsys, "--dry-run")
    assert (found["asked_under_versions"], found["version_now"]) == ([ADDITION.version], "99")
    with pytest.raises(SystemExit):
        main(["regrade", "--benchmark", "addition", "--dry-run", "--store", str(store)])
    said = " ".join(capsys.readouterr().out.split())
    assert f"Asked under version {ADDITION.version} of addition, which is 99 now" in said
