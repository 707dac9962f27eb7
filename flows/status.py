"""The state of every run, read from the runs' folders alone: right also while the results are being ingested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.names import nearest
from flows.errors import UsageError
from flows.run_folder import RunFolder


def status_rows(store: Path, plan: str | None) -> list[dict[str, Any]]:
    """One row a run: its state, last segment, and who works on it; then the runs that wait for tuning to choose."""
    plans = {file.stem: _labels(file) for file in (store / "plans").glob("*.json")}
    if plan is not None and plan not in plans:
        raise UsageError(f"no plan {plan!r} was run in {store}{nearest(plan, sorted(plans))}")
    rows = []
    for file in sorted((store / "runs").glob("*/spec.json")):
        folder = RunFolder(file.parent)
        names = sorted(name for name, runs in plans.items() if folder.run_id in runs)
        if plan is not None and plan not in names:
            continue
        rows.append(
            {
                "run": folder.run_id,
                "cell": next((plans[name][folder.run_id] for name in names), ""),
                "plans": ", ".join(names),
                "state": _state(folder),
                "segments": len(list((folder.path / "segments").glob("*.json"))),
                "evaluations": len(list((folder.path / "evaluations").glob("*.json"))),
                "attempts": len(list((folder.path / "attempts").glob("*.json"))),
            }
        )
    for name in plans if plan is None else [plan]:
        rows += [_waiting_row(name, *waiting) for waiting in _edition(store / "plans" / f"{name}.json")["waiting"]]
    return rows


def _waiting_row(plan: str, label: str, seed: int) -> dict[str, Any]:
    state = "waits for tuning"
    cell = f"{label}, seed {seed}"
    return {"run": "", "cell": cell, "plans": plan, "state": state, "segments": 0, "evaluations": 0, "attempts": 0}


def _labels(file: Path) -> dict[str, str]:
    """run_id -> the cell's label, of runs and trials."""
    edition = _edition(file)
    return {**edition["trials"], **edition["runs"]}


def _edition(file: Path) -> dict[str, Any]:
    """What was recorded of a plan last; empty for a file that cannot be read."""
    nothing: dict[str, Any] = {"runs": {}, "trials": {}, "waiting": []}
    try:
        return {**nothing, **json.loads(file.read_text())["edition"]}
    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
        return nothing


def _state(folder: RunFolder) -> str:
    if folder.finished():
        return "done"
    if folder.is_held("run"):
        return "running"
    attempts = sorted((folder.path / "attempts").glob("*.json"), key=lambda file: int(file.stem))
    if not attempts:
        return "queued"
    last = json.loads(attempts[-1].read_text())
    return f"incomplete (last try: process {last['pid']} on {last['host']})"
