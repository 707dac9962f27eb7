"""The state of every run, read from the runs' folders alone: right also while the results are being ingested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.names import nearest
from flows.errors import UsageError
from flows.run_folder import RunFolder


def status_rows(store: Path, plan: str | None) -> list[dict[str, Any]]:
    """One row a run: its state, last segment, and who works on it."""
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
    return rows


def _labels(edition: Path) -> dict[str, str]:
    """run_id -> the cell's label; empty for an edition that cannot be read."""
    try:
        return dict(json.loads(edition.read_text())["edition"]["runs"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
        return {}


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
