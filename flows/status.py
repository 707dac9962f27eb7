"""The state of every run, read from the runs' folders alone: right also while the results are being ingested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.run_folder import RunFolder


def status_rows(store: Path, plan: str | None) -> list[dict[str, Any]]:
    """One row a run: its state, last segment, and who works on it."""
    rows = []
    for file in sorted((store / "runs").glob("*/spec.json")):
        folder = RunFolder(file.parent)
        names = sorted({marker.stem.rsplit("-", 1)[0] for marker in (folder.path / "plans").glob("*.json")})
        if plan is not None and plan not in names:
            continue
        rows.append(
            {
                "run": folder.run_id,
                "plans": ", ".join(names),
                "state": _state(folder),
                "segments": len(list((folder.path / "segments").glob("*.json"))),
                "evaluations": len(list((folder.path / "evaluations").glob("*.json"))),
                "attempts": len(list((folder.path / "attempts").glob("*.json"))),
            }
        )
    return rows


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
