"""`stillroom evaluate --run`: a checkpoint is a model like any other, and answers as its run answered."""

from __future__ import annotations

import dataclasses
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from flows.cli import main
from flows.errors import UsageError
from flows.evaluating import Asked, checkpoint_model, evaluation_plan
from flows.plan import parse_plan
from flows.plan_spec import Plan
from flows.prepare import PreparedRun, prepare, record_plan
from flows.settings import Settings, read_settings
from training.checkpoint_evaluation import evaluate_segment
from training.session import Session


def _plan(adapter: dict[str, Any] | None) -> Plan:
    return parse_plan(
        {
            "name": "study",
            "model": "tiny-small",
            "data": {"train": "addition", "limit": 40},
            "preset": "tiny",
            "budget": {"updates": 4},
            "evaluation": {
                "benchmarks": ["addition"],
                "problems": 12,
                "sampling": {"max_new_tokens": 34, "temperature": 0},
                "every_updates": 2,
                "trace_problems": 0,
            },
            "set": {"batch.prompts": 4, "adapter": adapter, "learning_rate": 0.03 if adapter else 0.002},
            "seeds": [0],
            "cells": [{"method": "opsd"}],
        },
        "test",
    )


def _evaluated(run: PreparedRun, settings: Settings, segment: int | None) -> list[tuple[str, tuple[int, ...]]]:
    evaluate_segment(
        run.run.spec,
        run.run_id,
        run.folder.path,
        segment,
        cache=settings.cache,
        benchmarks_root=None,
        attempt=1,
    )
    (file,) = sorted((run.folder.path / "samples").glob("answers-*.parquet"))
    rows = parquet.read_table(file).to_pylist()
    return [(row["problem_id"], tuple(row["token_ids"])) for row in rows]


@pytest.mark.parametrize("adapter", [None, {"rank": 4, "alpha": 8.0}], ids=["all", "lora"])
def test_a_checkpoint_answers_as_its_run_did(tmp_path: Path, adapter: Any) -> None:
    settings = dataclasses.replace(read_settings(tmp_path / "store"), benchmarks=None)
    prepared = prepare(_plan(adapter), settings)
    record_plan(prepared, settings, created_at=0.0)
    (run,) = [run for run in prepared.runs if run.cell.method_key == "opsd"]
    session = Session(run.run.spec, run.run_id, run.folder.path, cache=settings.cache, benchmarks_root=None, attempt=1)
    with closing(session):
        session.run_segment(1)
    own = _evaluated(run, settings, 1)

    settings = dataclasses.replace(settings, cache=tmp_path / "cache")
    model, system_prompt = checkpoint_model(settings, run.run_id[:12], None)
    assert model == tmp_path / "cache" / "checkpoints" / f"{run.run_id}-update-2" and system_prompt is None
    assert checkpoint_model(settings, run.run_id, 2)[0] == model
    asked = Asked(problems=12, system_prompt=system_prompt, max_new_tokens=34)
    alone = prepare(evaluation_plan(str(model), ["addition"], asked), settings).runs[0]
    assert _evaluated(alone, settings, None) == own
    base = next(run for run in prepared.runs if run.cell.method_key == "base")
    assert _evaluated(base, settings, None) != own, "the run must have learned something to show"

    with pytest.raises(UsageError, match="no checkpoint after update 3; kept: 2"):
        checkpoint_model(settings, run.run_id, 3)
    shutil.rmtree(run.folder.path / "checkpoints")
    with pytest.raises(UsageError, match="has no checkpoint"):
        checkpoint_model(settings, run.run_id, None)


@pytest.mark.parametrize(
    "arguments", [[], ["tiny-demo", "--run", "opsd-s0"], ["tiny-demo", "--update", "4"]], ids=["none", "both", "update"]
)
def test_a_model_or_a_run_is_named(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["evaluate", *arguments, "--benchmark", "addition", "--store", str(tmp_path)])
    assert exit_.value.code == 2
    assert "name a model, or a run with --run" in " ".join(capsys.readouterr().err.split())
