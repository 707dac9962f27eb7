"""Benchmarks of the retention are asked of the untrained model and of the last checkpoint, and of none between."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.training.sessions import cache, facts, open_session, small_run
from training.checkpoint_evaluation import evaluate_segment
from training.spec import EvaluationSpec, RunSpec


def _run(**changes: object) -> RunSpec:
    spec = small_run("opsd")
    content = {**spec.evaluation.model_dump(mode="json"), "retention": ["chain"], "problems": 2, **changes}
    return spec.model_copy(update={"evaluation": EvaluationSpec.model_validate(content)})


def test_retention_is_asked_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    spec = _run(trace_problems=0)
    with closing(open_session(spec, tmp_path / "run")) as session:
        reports = [session.run_segment(segment) for segment in (1, 2)]
    assert [report.finished for report in reports] == [False, True]
    asked = {}
    base = spec.model_copy(update={"method": None})
    for name, each, segment in (("base", base, None), ("run", spec, 1), ("run", spec, 2)):
        marker = evaluate_segment(each, name, tmp_path / name, segment, cache=cache(), benchmarks_root=None, attempt=1)
        asked[name, marker["update"]] = sorted(marker["benchmarks"])
    assert asked == {("base", 0): ["addition", "chain"], ("run", 2): ["addition"], ("run", 4): ["addition", "chain"]}
    closed = [(record["update"], record["benchmark"]) for record in facts(tmp_path / "run", "evaluation")]
    assert sorted(closed) == [(2, "addition"), (4, "addition"), (4, "chain")]


def test_a_benchmark_is_asked_once() -> None:
    with pytest.raises(ValidationError, match="retention and benchmarks must not name a benchmark twice"):
        _run(retention=["addition"])
