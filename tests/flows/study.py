"""A small real study for tests, run as a user runs it: the console script in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLAN = """
name: small
model: tiny-small
data: {train: addition, limit: 400}
preset: tiny
budget: {updates: 6}
evaluation:
  benchmarks: [addition]
  problems: 40
  sampling: {max_new_tokens: 34, temperature: 0}
  every_updates: 2
set: {batch.prompts: 8}
seeds: [0, 1]
cells:
  - method: opsd
    set: {phases.student.terms.distill.entry_clip: null}
  - method: grpo
    set: {batch.prompts: 4, batch.group_size: 4}
"""

TUNED_PLAN = """
name: tuned
model: tiny-small
data: {train: addition, limit: 400}
preset: tiny
budget: {updates: 4}
evaluation:
  benchmarks: [addition]
  problems: 40
  sampling: {max_new_tokens: 34, temperature: 0}
  every_updates: 2
set: {batch.prompts: 8}
tuning:
  axes: {learning_rate: [0.0005, 0.002]}
  problems: 32
  every_updates: 4
seeds: [0]
cells:
  - method: sft
  - method: opsd
    set: {phases.student.terms.distill.entry_clip: null}
    tuning: {learning_rate: [0.001, 0.004]}
  - method: opsd
    label: wrong hint
    control: true
    like: OPSD
    set: {phases.student.terms.distill.entry_clip: null, views.teacher.context: other_problem}
"""

RUNS = 5
SEGMENTS_OF_A_RUN = 3


def write_plan(folder: Path, content: str = PLAN) -> Path:
    plan = folder / "small.yaml"
    plan.write_text(content)
    return plan


def environment(store: Path, **more: str) -> dict[str, str]:
    """The environment of a user's shell with a store of its own."""
    # What a make above us was told (ARGS=…) is not meant for the make that a test starts.
    theirs = ("PREFECT_", "RAY_", "MAKE", "MFLAGS", "ARGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return {**kept, "STILLROOM_STORE": str(store), "PYTHONUNBUFFERED": "1", **more}


def stillroom(*arguments: str, store: Path, timeout: float = 280, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(store, **more),
        stdin=subprocess.DEVNULL,
        check=False,
    )


def start(*arguments: str, store: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start one command in a process group of its own."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=environment(store),
            start_new_session=True,
        )


def wait_until(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def ask(store: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of one query, through the command line."""
    done = stillroom("query", sql, "--json", "--max-rows", "100000", store=store)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def lines(store: Path) -> list[Mapping[str, Any]]:
    """Every spool line of the store."""
    return [
        json.loads(line)
        for file in sorted(store.glob("runs/*/spool/*.jsonl"))
        for line in file.read_text().splitlines()
    ]
