"""Tags, notes and archiving of runs: facts appended beside the runs' own, so that a rebuilt database has them."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.errors import UsageError
from flows.report import refusals

ROLE = "user"
INGEST_WAIT_SECONDS = 10.0
"""How long to wait for a study that ingests; it will bring the marks into the results itself."""


def mark_runs(
    store: Path, prefixes: Sequence[str], marks: Sequence[tuple[str, str, bool]], as_json: bool, console: Console
) -> None:
    """Set or take back (mark, value, is_set) of every run whose id begins with one of ``prefixes``; print how it is.

    Raises UsageError for a run that is not there, before anything is written.
    """
    from evaluation.results.ingest import ingest
    from evaluation.results.records import RunMark
    from evaluation.results.selection import find_run
    from evaluation.results.snapshot import open_snapshot
    from evaluation.results.spool import Spool
    from evaluation.results.store import StoreBusyError

    if not prefixes:
        raise UsageError("name at least one run, by the beginning of its id (see `stillroom status`)")
    with refusals(), open_snapshot(store) as snapshot:
        runs = list(dict.fromkeys(find_run(snapshot, prefix) for prefix in prefixes))
    for run in runs if marks else ():
        with Spool(store / "runs" / run, role=ROLE, attempt=1) as spool:
            for mark, value, is_set in marks:
                spool.append(RunMark(run, mark, value, is_set, _author(), time.time()))
    with refusals():
        try:
            ingest(store, wait=INGEST_WAIT_SECONDS)
        except StoreBusyError:
            console.print("Recorded; a study is ingesting now and will show it.", style="yellow")
            return
        rows = _marks(store, runs)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("run", "tags", "notes", "archived")
    for row in rows:
        archived = "yes" if row["is_archived"] else ""
        table.add_row(Text(row["run_id"]), Text(", ".join(row["tags"])), Text("\n".join(row["notes"])), archived)
    console.print(table)


def _marks(store: Path, runs: Sequence[str]) -> list[dict[str, Any]]:
    from evaluation.results.snapshot import open_snapshot

    with open_snapshot(store) as snapshot:
        rows = snapshot.execute(
            "SELECT run_id, tags, notes, is_archived FROM run_marks WHERE list_contains($runs, run_id) ORDER BY run_id",
            {"runs": list(runs)},
        ).fetchall()
    return [dict(zip(("run_id", "tags", "notes", "is_archived"), row, strict=True)) for row in rows]


def _author() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        return None
