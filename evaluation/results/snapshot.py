"""The published snapshot: a whole copy of the database that any number of readers open, with no locks and no retries.

Each publish writes a new file under ``snapshots/`` and then moves the link ``results.ro.duckdb`` to it. The name must
be new every time: within one process DuckDB shares open databases by path, so a dashboard with an open connection
would go on seeing the old content under the old name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb

from evaluation.results.database import connect_writer, revision
from evaluation.results.spool import sync_folder
from evaluation.results.store import NoSnapshotError, Store, snapshot_version

__all__ = ["NoSnapshotError", "PublishError", "open_snapshot", "publish", "publish_connection", "snapshot_version"]

READER_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "threads": "2",
    "max_temp_directory_size": "0B",
    "lock_configuration": "true",
}
"""No files, no network, no extensions, bounded memory, and none of this can be changed by a query."""

KEPT_SNAPSHOTS = 2
"""The current one, and the one before for a reader that is just opening it."""

OPEN_TRIES = 3

# Copying must happen in another process: closing any handle on the database here would drop DuckDB's file lock.
_COPY = """
import os, sys
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "xb") as target:
    left = os.fstat(source.fileno()).st_size
    copy = getattr(os, "copy_file_range", None)
    while left > 0 and copy:
        try:
            count = copy(source.fileno(), target.fileno(), left)
        except OSError:
            break
        if count == 0:
            break
        left -= count
    source.seek(target.seek(0, os.SEEK_END))
    while block := source.read(2**22):
        target.write(block)
    target.flush()
    os.fsync(target.fileno())
"""


class PublishError(OSError):
    """The copy could not be made; readers keep the snapshot they have."""


def publish(store: Path, *, wait: float | None = None) -> bool:
    """Publish the database as it is; returns False when the newest snapshot already holds it.

    ``wait`` as in ``ingest``. Raises StoreBusyError, StoreDamagedError, PublishError when the copy fails, and
    NoSnapshotError when nothing has been ingested.
    """
    from evaluation.results.settle import settle

    files = Store(Path(store))
    with files.ingest_lock(wait):
        if not files.database.exists():
            raise NoSnapshotError(files.path)
        with connect_writer(files.database) as con:
            settle(con)  # an ingestor may have died between its facts and this
            return publish_connection(con, files)


def publish_connection(con: duckdb.DuckDBPyConnection, files: Store) -> bool:
    """``publish`` for the process that holds the lock and the connection."""
    name = f"{revision(con)}.duckdb"
    if files.snapshot.is_symlink() and files.snapshot.exists() and files.snapshot.readlink().name == name:
        return False
    con.execute("CHECKPOINT")
    files.snapshots.mkdir(exist_ok=True)
    _remove_old(files, keep=KEPT_SNAPSHOTS)
    target = files.snapshots / name
    temporary = target.with_suffix(f".{os.getpid()}-{time.time_ns()}.tmp")
    _copy(files.database, temporary)
    temporary.replace(target)
    sync_folder(files.snapshots)
    link = files.path / f".results.ro.{os.getpid()}-{time.time_ns()}.tmp"
    link.symlink_to(target.relative_to(files.path))
    link.replace(files.snapshot)
    sync_folder(files.path)
    _remove_old(files, keep=KEPT_SNAPSHOTS)
    return True


def _copy(source: Path, target: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(source), str(target)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        target.unlink(missing_ok=True)
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise PublishError(f"cannot publish {target.parent}: {reason}")


def _remove_old(files: Store, keep: int) -> None:
    """Delete older snapshots and what killed publishes left. Readers keep the files they have open."""
    for leftover in [*files.snapshots.glob("*.tmp"), *files.path.glob(".results.ro.*.tmp")]:
        leftover.unlink(missing_ok=True)
    current = files.snapshot.resolve() if files.snapshot.exists() else None
    others = [file for file in files.snapshots.glob("*.duckdb") if file.resolve() != current]
    others.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in others[keep - 1 :]:
        file.unlink(missing_ok=True)


def old_snapshots(files: Store) -> list[Path]:
    """Snapshots that were superseded, and what publishes and rebuilds that died left. Nobody needs them any more."""
    current = files.snapshot.resolve() if files.snapshot.exists() else None
    superseded = [file for file in files.snapshots.glob("*.duckdb") if current and file.resolve() != current]
    leftovers = [*files.snapshots.glob("*.tmp"), *files.path.glob(".results.ro.*.tmp")]
    return sorted([*superseded, *leftovers, *files.path.glob("results.rebuild-*")])


def open_snapshot(store: Path) -> duckdb.DuckDBPyConnection:
    """A read-only connection to the newest snapshot, with READER_SETTINGS; the caller closes it.

    It goes on showing that state when a newer one is published. Raises NoSnapshotError when there is none.
    """
    files = Store(Path(store))
    for _ in range(OPEN_TRIES):
        path = files.snapshot.resolve()
        try:
            return duckdb.connect(str(path), read_only=True, config=dict(READER_SETTINGS))
        except duckdb.IOException:
            if path.exists():
                raise
            # Not there: never published, or deleted because two newer ones were published since we read the link.
    raise NoSnapshotError(files.path)
