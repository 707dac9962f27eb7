"""The benchmarks run at small sizes and measure what they say; their times are not judged."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.__main__ import main


def test_quick_benchmarks(tmp_path: Path) -> None:
    found = json.loads(main(["--quick", "--folder", str(tmp_path)]).read_text())
    head = {row["head"]: row for row in found["head"]}
    assert set(head) == {"products", "full", "chunked"}
    assert head["products"]["x products"] == 1
    assert head["chunked"]["gradient error"] < 1e-5
    (store,) = found["store"]
    # One row a metric, and one for the cost.
    assert store["rows"] >= 200 * 10
