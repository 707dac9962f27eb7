"""Runs small enough for tests, and segments of them in this process or (``python -m``) in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.samplers.base import SamplingParams
from tests.training.small import small_method
from training.session import Session
from training.spec import ComputeSpec, DataSpec, EvaluationSpec, ModelSpec, RunSpec, UpdatesBudget

METRICS_OF_TIME = {"t_generate", "t_verify", "t_teacher", "t_train", "t_sync"}
COSTS_OF_TIME = {"wall_seconds", "gpu_seconds"}


def small_run(
    key: str, changes: Mapping[str, Any] | None = None, *, updates: int = 4, every: int = 2, **fields: Any
) -> RunSpec:
    """``key`` on tiny-small and a few additions."""
    data: dict[str, Any] = {
        "method": small_method(key, changes),
        "model": ModelSpec(name="tiny-small"),
        "data": DataSpec(train="addition", limit=10),
        "budget": UpdatesBudget(updates=updates),
        "evaluation": EvaluationSpec(
            benchmarks=("addition",),
            problems=6,
            sampling=SamplingParams(max_new_tokens=34, temperature=0),
            every_updates=every,
        ),
        "compute": ComputeSpec(micro_batch_rows=2, head_chunk_tokens=16, sampling_rows=3),
        "seed": 7,
    }
    return RunSpec(**{**data, **fields})


def cache() -> Path:
    return Path(os.environ["STILLROOM_CACHE"])


def open_session(spec: RunSpec, run_dir: Path, attempt: int = 1) -> Session:
    run_dir.mkdir(parents=True, exist_ok=True)
    return Session(spec, run_dir.name, run_dir, cache=cache(), benchmarks_root=None, attempt=attempt)


def elsewhere(specs: Mapping[str, RunSpec], root: Path, segment: int, attempt: int) -> int:
    """Trains ``segment`` of every spec below ``root`` in a new process; returns its pid."""
    plan = {name: spec.model_dump(mode="json") for name, spec in specs.items()}
    command = [sys.executable, "-m", "tests.training.sessions", str(root), str(segment), str(attempt)]
    done = subprocess.run(command, input=json.dumps(plan), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def facts(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """Records of one kind, one for each key: the last of the highest attempt, without times."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for file in sorted((run_dir / "spool").glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns):
        for text in file.read_text().splitlines():
            line = json.loads(text)
            if line["kind"] == kind and line["attempt"] >= found.get(line["key"], (0, {}))[0]:
                found[line["key"]] = (line["attempt"], line["data"])
    return [_timeless(data) for _, (_, data) in sorted(found.items())]


def _timeless(data: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if name not in {"at", "seconds"}}
    if "metrics" in kept:
        kept["metrics"] = {name: value for name, value in kept["metrics"].items() if name not in METRICS_OF_TIME}
    if "cost" in kept:
        kept["cost"] = {name: value for name, value in kept["cost"].items() if name not in COSTS_OF_TIME}
    return kept


def main(arguments: Sequence[str]) -> None:
    root, segment, attempt = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    for name, data in json.loads(sys.stdin.read()).items():
        session = open_session(RunSpec.model_validate(data), root / name, attempt)
        session.run_segment(segment)
        session.close()
    print(os.getpid())


if __name__ == "__main__":
    main(sys.argv[1:])
