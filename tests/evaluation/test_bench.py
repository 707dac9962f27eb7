"""The sampler's benchmark runs and writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation import bench


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Path) -> None:
    results = bench.main(["--quick", "--json", str(tmp_path / "out.json")])
    written = json.loads((tmp_path / "out.json").read_text())
    assert [case["case"] for case in written["cases"]] == [result.case for result in results]
    equal = results[0]
    assert equal.tokens == 64 * bench.NEW_TOKENS
    assert all(result.ours > 0 and result.ratio > 0 for result in results)
