"""The methods really learn on the tiny base, and the control does not (minutes)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.samplers.base import SamplingParams
from tests.training.sessions import cache, open_session
from tests.training.small import NO_CLIP
from training.method import override_all
from training.methods import METHODS, PRESETS
from training.session import evaluate_segment
from training.spec import ComputeSpec, DataSpec, EvaluationSpec, ModelSpec, RunSpec, UpdatesBudget

pytestmark = pytest.mark.slow


def _accuracy(key: str, changes: dict[str, Any], run_dir: Path) -> float:
    """Greedy accuracy on the 200 test problems after 40 updates at the tiny preset."""
    spec = RunSpec(
        method=override_all(METHODS[key], {**PRESETS[key]["tiny"], **changes}),
        model=ModelSpec(name="tiny-demo"),
        data=DataSpec(train="addition"),
        budget=UpdatesBudget(updates=40),
        evaluation=EvaluationSpec(
            benchmarks=("addition",), sampling=SamplingParams(max_new_tokens=34, temperature=0), every_updates=40
        ),
        compute=ComputeSpec(),
        seed=0,
    )
    session = open_session(spec, run_dir)
    session.run_segment(1)
    session.close()
    marker = evaluate_segment(spec, run_dir.name, run_dir, 1, cache=cache(), benchmarks_root=None, attempt=1)
    counts = marker["benchmarks"]["addition"]
    return counts["passed"] / counts["answers"]


def test_opsd_learns_and_another_problems_solution_teaches_nothing(tmp_path: Path) -> None:
    # The base stands near .36; the standard error of 200 problems is about .035.
    assert _accuracy("opsd", NO_CLIP, tmp_path / "opsd") > 0.6
    assert _accuracy("opsd", {**NO_CLIP, "views.teacher.context": "other_problem"}, tmp_path / "control") < 0.2


def test_the_first_versions_divergence_learns(tmp_path: Path) -> None:
    assert _accuracy("opsd_v1", {}, tmp_path / "opsd_v1") > 0.6


def test_imitation_learns(tmp_path: Path) -> None:
    assert _accuracy("sft", {}, tmp_path / "sft") > 0.8
