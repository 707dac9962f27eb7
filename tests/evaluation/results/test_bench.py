"""Ingest is bulk work: close to the cost of parsing, and linear. Ratios measured side by side, no clock limits."""

from __future__ import annotations

from pathlib import Path

from evaluation.results.bench import bench_ingest
from evaluation.results.snapshot import open_snapshot


def test_a_hundred_thousand_metric_rows_cost_a_few_parses(tmp_path: Path) -> None:
    # Row by row this would be thousands of times the parsing: 390 rows/s against about a million.
    measured = {m.name: m for m in bench_ingest(tmp_path, 100_000)}
    assert measured["ingest"].ratio < 25, str(measured["ingest"])
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*), count(DISTINCT update) FROM latest_steps").fetchone() == (100_000, 5000)
