"""Rate at which facts of a spool reach the published snapshot, and what one more ingest with nothing new costs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from evaluation.results.ingest import ingest
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool

METRICS = 10
FULL_STEPS = (10_000, 100_000)
QUICK_STEPS = (200,)


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row a number of steps, each step with METRICS metrics."""
    found = []
    for steps in QUICK_STEPS if quick else FULL_STEPS:
        with tempfile.TemporaryDirectory(prefix="still-bench-") as folder:
            found.append(_measure(Path(folder), steps))
    return found


def _measure(store: Path, steps: int) -> dict[str, Any]:
    started = time.perf_counter()
    with Spool(store / "runs" / "bench", role="trainer", attempt=1) as spool:
        for update in range(steps):
            metrics: dict[str, float | None] = {f"metric/{index}": update + index / 7 for index in range(METRICS)}
            spool.append(StepRecord("bench", update, 0, metrics, {"rollout_tokens": 64.0 * update}, float(update)))
    spooled = time.perf_counter()
    report = ingest(store, wait=60)
    ingested = time.perf_counter()
    ingest(store, wait=60)
    again = time.perf_counter()
    with open_snapshot(store) as con:
        (count,) = con.execute("SELECT count(*) FROM steps").fetchone() or (0,)
    assert report.lines == steps, report
    return {
        "store": f"{steps} steps of {METRICS} metrics",
        "lines/s spooled": steps / (spooled - started),
        "rows": count,
        "rows/s ingested": count / (ingested - spooled),
        "s empty ingest": again - ingested,
    }
