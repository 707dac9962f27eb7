"""The folder of benchmark files, for tests that need the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = os.environ.get("STILLROOM_BENCHMARKS")
needs_files = pytest.mark.skipif(not FOLDER, reason="STILLROOM_BENCHMARKS is not set: the real files are not here")


def folder() -> Path:
    assert FOLDER is not None
    return Path(FOLDER)
