"""Where Stillroom keeps and finds things: three folders, each an environment variable and a command-line option."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flows.errors import UsageError


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
    if store is not None and str(store) in {"", "."}:
        raise UsageError("--store is empty: name a folder")
    folder = (store or Path(os.environ.get("STILLROOM_STORE") or "store")).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the store {folder} is a file: name a folder with --store or STILLROOM_STORE")
    benchmarks = os.environ.get("STILLROOM_BENCHMARKS")
    return Settings(
        store=folder,
        cache=Path(os.environ.get("STILLROOM_CACHE") or Path.home() / ".cache" / "stillroom").absolute(),
        benchmarks=Path(benchmarks).absolute() if benchmarks else None,
    )
