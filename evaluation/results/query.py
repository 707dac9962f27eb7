"""One SELECT on the published snapshot, for the command line and the dashboard's SQL page.

The query runs in a child process: its time and memory can then be bounded whatever it does, and an engine that
crashes takes nothing with it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.results.store import NoSnapshotError, snapshot_version

MAX_ROWS = 10_000
TIMEOUT_SECONDS = 30.0

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from evaluation.results.query_process import main; main()"
)


class QueryError(ValueError):
    """The statement is not one SELECT, is wrong, took too long or needed too much memory; one readable line."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of a query as values that JSON can say: times as ISO text, bytes as hex, NaN and infinities as None."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's name of each column's type."""
    rows: list[tuple[Any, ...]]
    truncated: bool
    """Whether the query had more rows than were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: columns, types, truncated, and each row as a list in column order."""
        return {
            "columns": list(self.columns),
            "types": list(self.types),
            "rows": [list(row) for row in self.rows],
            "truncated": self.truncated,
        }

    def to_csv(self) -> str:
        """Header and rows; an empty field is NULL."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def run_query(
    store: Path, sql: str, *, max_rows: int = MAX_ROWS, timeout_seconds: float = TIMEOUT_SECONDS
) -> QueryResult:
    """The result of one SELECT on the store's snapshot.

    Nothing can be written, no file or network reached, memory, threads and time are bounded. Raises NoSnapshotError
    when nothing is published yet and QueryError, one line, for everything wrong with the query.
    """
    reply = _ask(store, sql, max_rows, timeout_seconds)
    return QueryResult(
        tuple(reply["columns"]), tuple(reply["types"]), [tuple(row) for row in reply["rows"]], reply["truncated"]
    )


def query_to_parquet(
    store: Path, sql: str, file: Path, *, max_rows: int, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[int, bool]:
    """Write the rows of one SELECT to ``file``, whole or not at all; how many, and whether there were more.

    Bounds and errors as in ``run_query``; OSError where the file cannot be written. The statement itself reaches no
    file: the process that runs it writes its rows.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        reply = _ask(store, sql, max_rows, timeout_seconds, file=temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return reply["written"], reply["truncated"]


def _ask(store: Path, sql: str, max_rows: int, timeout_seconds: float, *, file: Path | None = None) -> dict[str, Any]:
    if max_rows < 1:
        raise ValueError(f"max_rows must be at least 1, got {max_rows}")
    if snapshot_version(store) is None:
        raise NoSnapshotError(store)
    request = {
        "store": str(store),
        "sql": sql,
        "max_rows": max_rows,
        "cpu_seconds": math.ceil(4 * timeout_seconds) + 5,
        "file": str(file.absolute()) if file else None,
    }
    command = [sys.executable, "-I", "-S", "-c", _CHILD, json.dumps([p or "." for p in sys.path])]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise QueryError(f"stopped after {timeout_seconds:g} s: narrow the query or raise the limit") from None
    if done.returncode != 0:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise QueryError(f"the query made the database engine fail ({reason})")
    reply = json.loads(done.stdout)
    if "error" in reply:
        raise QueryError(reply["error"])
    return reply
