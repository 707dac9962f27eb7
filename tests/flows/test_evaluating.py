"""The plan that `stillroom evaluate` makes, and what it prints."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from evaluation.results.ingest import ingest
from evaluation.results.snapshot import open_snapshot
from evaluation.results.summary import summarise
from evaluation.statistics import pass_at_k, problem_interval
from flows.evaluating import Asked, evaluation_plan, print_summaries
from flows.expansion import expand
from flows.identity import identity, run_id
from flows.plan import parse_plan
from flows.plan_spec import PlanError
from tests.evaluation.results.factory import Study, base_run_id, write_study

STUDY = Study(cells=(), samples=5, unscored_rate=0.2)


def test_a_plan_without_cells_has_the_untrained_model_alone() -> None:
    (cell,) = expand(evaluation_plan("tiny-demo", ["addition"], Asked()))
    assert cell.method_key == "base" and cell.spec.method is None and cell.spec.data is None
    assert cell.spec.evaluation.samples == 1 and cell.spec.evaluation.sampling.temperature == 0


def test_a_study_that_asks_the_same_shares_the_run() -> None:
    """What matters in training alone (how often it is evaluated, how it is batched) is not in the untrained model."""
    evaluated = evaluation_plan("tiny-demo", ["addition"], Asked(problems=40, max_new_tokens=34))
    study = parse_plan(
        {
            "name": "study",
            "model": "tiny-demo",
            "data": "addition",
            "preset": "tiny",
            "budget": {"updates": 20},
            "evaluation": {
                "benchmarks": ["addition"],
                "problems": 40,
                "sampling": {"max_new_tokens": 34, "temperature": 0},
                "every_updates": 10,
            },
            "compute": {"micro_batch_rows": 7, "head_chunk_tokens": 96},
            "seeds": [3, 4],
            "cells": [{"method": "opsd"}],
        },
        "test",
    )
    base, first, *_ = expand(study)
    (alone,) = expand(evaluated)
    parts = [identity(cell.spec, "model", "data") for cell in (base, alone)]
    assert run_id(base.spec, parts[0]) == run_id(alone.spec, parts[1])
    assert first.spec.evaluation.every_updates == 10 and first.spec.compute.micro_batch_rows == 7


def test_another_seed_is_another_run() -> None:
    specs = [expand(evaluation_plan("tiny-demo", ["addition"], Asked(seed=seed)))[0].spec for seed in (None, 0, 5)]
    assert [spec.seed for spec in specs] == [0, 0, 5]
    ids = [run_id(spec, identity(spec, "model", "data")) for spec in specs]
    assert ids[0] == ids[1] != ids[2] and ids[2].startswith("base-s5-")


@pytest.mark.parametrize(
    ("benchmarks", "asked", "expected"),
    [
        (["aime24"], Asked(), (12, 1.0, 1.0)),
        (["aime24"], Asked(samples=1), (1, 0.0, 1.0)),
        (["aime24"], Asked(samples=4, temperature=0.7, top_p=0.95), (4, 0.7, 0.95)),
        (["aime24", "aime25"], Asked(), (12, 1.0, 1.0)),
        (["addition"], Asked(samples=8), (8, 1.0, 1.0)),
        (["addition"], Asked(temperature=0.5), (1, 0.5, 1.0)),
        (["aime24", "addition"], Asked(samples=2, temperature=1.0), (2, 1.0, 1.0)),
    ],
)
def test_sampling_is_the_protocols_unless_given(
    benchmarks: list[str], asked: Asked, expected: tuple[int, float, float]
) -> None:
    evaluation = evaluation_plan("some/model", benchmarks, asked).evaluation
    assert (evaluation.samples, evaluation.sampling.temperature, evaluation.sampling.top_p) == expected


@pytest.mark.parametrize(
    ("benchmarks", "asked", "message"),
    [
        ([], Asked(), "name at least one"),
        (["adition"], Asked(), "unknown benchmark 'adition'; did you mean 'addition'"),
        (["aime24", "addition"], Asked(), "are sampled differently in their papers"),
        (["addition"], Asked(samples=4, temperature=0.0), "the same answer 4 times"),
        (["addition"], Asked(split="tests"), "split"),
        (["addition"], Asked(seed=-1), "--seed -1: a seed is 0 or more"),
        (["addition", "addition"], Asked(), "each once"),
    ],
)
def test_what_cannot_be_asked_is_refused(benchmarks: list[str], asked: Asked, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        evaluation_plan("tiny-demo", benchmarks, asked)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_study(folder, STUDY)
    ingest(folder)
    return folder


def test_the_summary_equals_the_raw_answers(store: Path) -> None:
    with open_snapshot(store) as snapshot:
        (summary,) = summarise(snapshot, base_run_id(STUDY))
        raw = _raw(snapshot)
    scored = [[passed for passed in answers if passed is not None] for answers in raw.values()]
    shares = [sum(answers) / len(answers) for answers in scored if answers]
    assert summary.accuracy == pytest.approx(sum(shares) / len(shares), abs=1e-12)
    assert summary.unscored == sum(passed is None for answers in raw.values() for passed in answers) > 0
    for k in (1, 2, 4):
        known = [pass_at_k(len(answers), sum(answers), k) for answers in scored if len(answers) >= k]
        assert summary.pass_at[k] == pytest.approx(sum(value or 0.0 for value in known) / len(known), abs=1e-12)
    assert summary.interval is not None and summary.interval.low < summary.accuracy < summary.interval.high
    assert problem_interval(shares) is not None


def _raw(con: duckdb.DuckDBPyConnection) -> dict[str, list[bool | None]]:
    found: dict[str, list[bool | None]] = {}
    for problem, verdict in con.execute("SELECT problem_id, verdict FROM graded_answers").fetchall():
        found.setdefault(problem, []).append(None if verdict == "not_scored" else verdict == "pass")
    return found


def test_what_is_printed_says_what_it_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_summaries(store, base_run_id(STUDY), False, Console(width=100))
    printed = capsys.readouterr().out
    for text in ("avg@5", "pass@2", "pass^4", "maj@5", "strict format kept", "not scored", "Student's t"):
        assert text in printed
