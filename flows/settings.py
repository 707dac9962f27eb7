"""Where Stillroom keeps and finds things: three folders, each an environment variable and a command-line option."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Folders of one invocation."""

    store: Path
    """STILLROOM_STORE: runs and results; default ./store."""
    cache: Path
    """STILLROOM_CACHE: models built or converted here; default ~/.cache/stillroom."""
    benchmarks: Path | None
    """STILLROOM_BENCHMARKS: benchmark files; no default."""


def read_settings(store: Path | None = None) -> Settings:
    """Settings from the environment; ``store`` overrides."""
    benchmarks = os.environ.get("STILLROOM_BENCHMARKS")
    return Settings(
        store=(store or Path(os.environ.get("STILLROOM_STORE") or "store")).absolute(),
        cache=Path(os.environ.get("STILLROOM_CACHE") or Path.home() / ".cache" / "stillroom").absolute(),
        benchmarks=Path(benchmarks).absolute() if benchmarks else None,
    )
