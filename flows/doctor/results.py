"""Checks of a store, without changing it: an ingest or a study may be running."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flows.doctor.check import Check

LOCK_WAIT_SECONDS = 1.0
"""How long an ingest may go on before the lock is called held."""


def database(store: Path) -> Check:
    """Whether the published snapshot can be read, and whether the database is free for the next ingest."""
    import duckdb

    from evaluation.results.snapshot import NoSnapshotError, open_snapshot
    from evaluation.results.store import Store, StoreBusyError

    if not store.is_dir():
        return Check("store", True, f"nothing in {store} yet")
    if not Store(store).spool_files() and not Store(store).snapshot.exists():
        return Check("store", True, f"no results in {store} yet")
    try:
        with open_snapshot(store) as con:
            (runs,) = con.execute("SELECT count(*) FROM runs").fetchone() or (0,)
    except NoSnapshotError:
        return Check("store", None, f"{store} has runs and no published results", "stillroom ingest")
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        return Check("store", False, f"the published results cannot be read: {reason}", "stillroom ingest --rebuild")
    try:
        with Store(store).ingest_lock(LOCK_WAIT_SECONDS):
            return Check("store", True, f"{store}: {runs} runs published, free for the next ingest")
    except StoreBusyError:
        return Check("store", True, f"{store}: {runs} runs published, an ingest is running")


def quarantine(store: Path) -> Check:
    """Lines of spools that were refused."""
    import duckdb

    from evaluation.results.snapshot import NoSnapshotError, open_snapshot

    try:
        with open_snapshot(store) as con:
            (lines,) = con.execute("SELECT count(*) FROM quarantine").fetchone() or (0,)
    except (NoSnapshotError, duckdb.Error):
        return Check("refused lines", True, "no published results to look at")
    if lines:
        fix = 'stillroom query "select * from quarantine"'
        return Check("refused lines", None, f"{lines} lines of the spools were not understood", fix)
    return Check("refused lines", True, "none")


def runs(store: Path) -> Check:
    """Runs that no living process holds and that are not finished."""
    from flows.status import status_rows

    states = Counter(str(row["state"]).partition(" ")[0] for row in status_rows(store, None))
    detail = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
    if states["incomplete"]:
        fix = "run the same plan again: it goes on from the last checkpoint (stillroom status lists the runs)"
        return Check("runs", None, detail, fix)
    return Check("runs", True, detail)
