"""How fast facts reach readers, as ratios to a floor measured beside them.

``python -m evaluation.results.bench [ROWS]`` prints one line a measurement and writes nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluation.results.ingest import ingest
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.store import Store

METRICS_PER_STEP = 20
"""About what a training update reports."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed piece of work and the same rows' floor: parsing their lines as JSON and nothing else."""

    name: str
    rows: int
    seconds: float
    floor_seconds: float

    @property
    def ratio(self) -> float:
        """Times the floor; comparable between machines, unlike the seconds."""
        return self.seconds / self.floor_seconds

    def __str__(self) -> str:
        rate = self.rows / self.seconds
        return (
            f"{self.name}: {self.rows:,} rows in {self.seconds:.2f} s, {rate:,.0f} rows/s, {self.ratio:.1f} x parsing"
        )


def write_steps(store: Path, rows: int, metrics_per_step: int = METRICS_PER_STEP) -> None:
    """A spool with ``rows`` metric values."""
    metrics: dict[str, float | None] = {f"metric_{index}": index / 7 for index in range(metrics_per_step)}
    with Spool(store / "runs" / "bench", role="trainer", attempt=1) as spool:
        for update in range(1, rows // metrics_per_step + 1):
            spool.append(StepRecord("bench", update, 0, metrics, {"rollout_tokens": 1.0 * update}, float(update)))


def bench_ingest(store: Path, rows: int = 100_000, metrics_per_step: int = METRICS_PER_STEP) -> list[Measurement]:
    """Ingest ``rows`` metric values into a store that exists, then read them back from the snapshot."""
    ingest(store)
    write_steps(store, rows, metrics_per_step)
    content = b"".join(path.read_bytes() for path in Store(store).spool_files())
    floor = _seconds(lambda: [json.loads(line) for line in content.splitlines()])
    moved = _seconds(lambda: ingest(store, publish=False))
    published = _seconds(lambda: ingest(store))
    with open_snapshot(store) as con:
        sql = "SELECT name, avg(value) FROM metric_curves WHERE run_id = 'bench' GROUP BY name"
        read = _seconds(lambda: con.execute(sql).fetchall())
    named = {"ingest": moved, "publish": published, "read": read}
    return [Measurement(name, rows, seconds, floor) for name, seconds in named.items()]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for measurement in bench_ingest(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
            print(measurement)
