"""The benchmark runs at a small size and counts what it says; its times are not judged."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.__main__ import main
from tests.bench.store import METRICS, QUICK_STEPS


def test_quick_store_benchmark(tmp_path: Path) -> None:
    main(["--quick", "--json", str(tmp_path / "bench" / "store.json")])
    (row,) = json.loads((tmp_path / "bench" / "store.json").read_text())["rows"]
    assert row["rows"] == QUICK_STEPS[0] * METRICS
    assert row["rows/s ingested"] > 0
