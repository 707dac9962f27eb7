"""The store's own benchmark as rows of a table: ingest, publish and read, as ratios to parsing the same lines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from evaluation.results.bench import bench_ingest

FULL_ROWS = (100_000, 1_000_000)
"""Two sizes, so that a cost that is not linear shows."""
QUICK_ROWS = (2_000,)


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row a size and piece of work."""
    found = []
    for count in QUICK_ROWS if quick else FULL_ROWS:
        with tempfile.TemporaryDirectory(prefix="still-bench-") as folder:
            measured = bench_ingest(Path(folder), count)
        found += [
            {
                "work": one.name,
                "rows": one.rows,
                "seconds": one.seconds,
                "rows/s": one.rows / one.seconds,
                "x parsing": one.ratio,
            }
            for one in measured
        ]
    return found
