"""The store's files and the lock of the process that writes its database (no database library here)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from evaluation.results.locks import hold
from evaluation.results.spool import COMPACTED_FOLDER, SPOOL_FOLDER


class StoreBusyError(RuntimeError):
    """Another process ingests into this store, or has its database open."""


class StoreDamagedError(RuntimeError):
    """The database file cannot be read; the spools still hold everything."""


class NoSnapshotError(FileNotFoundError):
    """Nothing has been published in this store yet."""

    def __init__(self, store: Path) -> None:
        super().__init__(
            f"no results in {store} yet: run `stillroom demo`, or `stillroom ingest` for runs that are there"
        )


@dataclass(frozen=True, slots=True)
class Store:
    """Where a store keeps what."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def database(self) -> Path:
        """Opened by the process that holds the lock and by nobody else."""
        return self.path / "results.duckdb"

    @property
    def snapshot(self) -> Path:
        """What readers open: a link to the newest file in ``snapshots``."""
        return self.path / "results.ro.duckdb"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    def spool_files(self) -> list[Path]:
        """Every spool file, in a fixed order."""
        return sorted(self.runs.glob(f"*/{SPOOL_FOLDER}/*.jsonl"))

    def compacted_files(self) -> list[Path]:
        """Every file that holds spools of a finished run, in a fixed order."""
        return sorted(self.runs.glob(f"*/{COMPACTED_FOLDER}/*.parquet"))

    @contextlib.contextmanager
    def ingest_lock(self, wait: float | None = None) -> Generator[None]:
        """Hold the right to write the database; the kernel takes it back when the process dies.

        ``wait`` is the longest wait in seconds, None waits as long as it takes. Raises StoreBusyError after that.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        deadline = None if wait is None else time.monotonic() + wait

        def give_up() -> None:
            if deadline is not None and time.monotonic() >= deadline:
                raise StoreBusyError(f"another process is ingesting into {self.path}: try again") from None

        with hold(self.path / "ingest.lock", give_up):
            yield


def snapshot_version(store: Path) -> tuple[int, int] | None:
    """(inode, mtime in ns) of the published snapshot, which changes with every publish; None before the first."""
    try:
        status = Store(Path(store)).snapshot.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
