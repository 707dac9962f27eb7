"""Ingesting while runs go on: a child process of the driver, or a daemon of its own."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import duckdb

from evaluation.results.ingest import ingest, rebuild
from evaluation.results.store import Store, StoreBusyError, StoreDamagedError

POLL_SECONDS = 1.0
PUBLISH_SECONDS = 5.0
"""Least time between two snapshots: a copy of a large store takes a good part of a second."""
FAILURES = (StoreBusyError, StoreDamagedError, OSError, duckdb.Error)
"""What can be better at the next poll: another program in the database, a full disk."""


def follow(
    store: Path,
    stop: threading.Event,
    *,
    poll_seconds: float = POLL_SECONDS,
    publish_seconds: float = PUBLISH_SECONDS,
    parent_pid: int | None = None,
) -> int:
    """Ingest new lines as they come and publish, until ``stop`` is set or the parent is gone; then once more.

    The lock is held only while lines are moved, so that `stillroom ingest` works beside it. Returns the exit status:
    1 when the last pass failed.
    """
    seen: dict[str, tuple[int, int]] | None = None
    published_at, unpublished, complaint = -publish_seconds, True, ""
    while True:
        last = stop.is_set() or (parent_pid is not None and os.getppid() != parent_pid)
        failed, report = False, None
        try:
            present = _spool_sizes(store)
            due = last or (unpublished and time.monotonic() - published_at >= publish_seconds)
            if due or present != seen:
                report = ingest(store, publish=due)
                unpublished = not due
                published_at = time.monotonic() if due else published_at
                seen = present
            complaint = _told("; ".join(report.damaged) if report else "", complaint)
        except FAILURES as error:
            failed = True
            complaint = _told(str(error), complaint)
        if last:
            return int(failed)
        stop.wait(poll_seconds)


def _told(complaint: str, before: str) -> str:
    """Print a complaint that is new; returns it."""
    if complaint and complaint != before:
        print(f"ingest: {complaint}", file=sys.stderr, flush=True)
    return complaint


def _spool_sizes(store: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every spool: enough to see, without opening the database, that nothing happened."""
    files = Store(Path(store))
    sizes = {}
    for path in [*files.spool_files(), *files.compacted_files()]:
        with contextlib.suppress(FileNotFoundError):  # compacted, or its run removed, since the files were listed
            status = path.stat()
            sizes[str(path)] = (status.st_size, status.st_mtime_ns)
    return sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m evaluation.results.ingest``: one pass, or ``--follow`` until SIGTERM, Ctrl-C or the parent's end."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.results.ingest", description=ingest.__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--rebuild", action="store_true", help="make the database again from the spools")
    parser.add_argument("--follow", action="store_true", help="go on until SIGTERM or until the parent process ends")
    parser.add_argument("--parent-pid", type=int, default=None, help="with --follow: the parent (default: who started)")
    options = parser.parse_args(arguments)
    try:
        if options.rebuild or not options.follow:
            report = rebuild(options.store) if options.rebuild else ingest(options.store)
            print(", ".join(f"{name} {value}" for name, value in asdict(report).items()))
    except FAILURES as error:
        print(f"ingest: {error}", file=sys.stderr)
        return 1
    if not options.follow:
        return 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return follow(options.store, stop, parent_pid=options.parent_pid or os.getppid())
