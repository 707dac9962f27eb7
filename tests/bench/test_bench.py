"""The benchmark runs at a small size and keeps what it prints; its times are not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import main


def test_quick_store_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json", str(tmp_path / "bench" / "store.json")])
    rows = json.loads((tmp_path / "bench" / "store.json").read_text())["rows"]
    assert {row["work"]: row["rows"] for row in rows} == {"ingest": 2000, "publish": 2000, "read": 2000}
    shown = capsys.readouterr().out
    assert all(row["work"] in shown for row in rows)
