"""How far each spool has been read: kept in the database, in the same transaction as the facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

import duckdb
import pyarrow as pa

from evaluation.results.sources import SpoolReader

_ARROW = {
    "str": pa.string(),
    "str | None": pa.string(),
    "int": pa.int64(),
    "int | None": pa.int64(),
    "list[str]": pa.list_(pa.string()),
}


@dataclass(slots=True)
class SpoolState:
    """One spool file: who writes it and what of it is in the database (a row of ``ledger``)."""

    file: str
    """Path relative to the store."""
    run_id: str
    """The run folder it lies in."""
    writer: str
    host: str
    pid: int | None
    role: str | None = None
    consumed_bytes: int = 0
    """Everything before this offset is facts or quarantine."""
    seen_bytes: int = 0
    """Size at the last look; the difference is a line that has no end yet."""
    seen_mtime_ns: int = 0
    fingerprint: str = ""
    lines: int = 0
    bad_lines: int = 0
    kinds: list[str] = field(default_factory=list)
    first_at: float | None = None
    """Seconds since 1970, as in the lines; a timestamp in the table."""
    last_at: float | None = None

    @classmethod
    def new(cls, file: str) -> SpoolState:
        """State of a file nothing has been read of; host and process come from its name."""
        path = Path(file)
        host, pid, start = (["", "", "", *path.stem.rsplit("-", 2)])[-3:]
        named = bool(host) and pid.isdigit() and start.isdigit()
        return cls(file, path.parts[1], path.stem, host if named else "", int(pid) if named else None)

    def unchanged(self, size: int, mtime_ns: int) -> bool:
        return (self.seen_bytes, self.seen_mtime_ns) == (size, mtime_ns)

    def continues_in(self, reader: SpoolReader, size: int) -> bool:
        """Whether the spool still begins with what has been read of it."""
        return size >= self.consumed_bytes and reader.fingerprint(self.consumed_bytes) == self.fingerprint


_TIMES = ("first_at", "last_at")


def read_ledger(con: duckdb.DuckDBPyConnection) -> dict[str, SpoolState]:
    """Every known spool by its path relative to the store."""
    columns = ", ".join(f"epoch({f.name})" if f.name in _TIMES else f.name for f in fields(SpoolState))
    return {row[0]: SpoolState(*row) for row in con.execute(f"SELECT {columns} FROM ledger").fetchall()}


def write_ledger(con: duckdb.DuckDBPyConnection, states: Iterable[SpoolState]) -> None:
    """Replace the rows of ``states``; the caller owns the transaction."""
    rows = list(states)
    columns = {}
    for f in fields(SpoolState):
        values = [getattr(row, f.name) for row in rows]
        if f.name in _TIMES:
            microseconds = [None if value is None else round(value * 1_000_000) for value in values]
            columns[f.name] = pa.array(microseconds, pa.timestamp("us"))
        else:
            columns[f.name] = pa.array(values, _ARROW[str(f.type)])
    con.register("ledger_rows", pa.table(columns))
    con.execute("DELETE FROM ledger WHERE file IN (SELECT file FROM ledger_rows)")
    con.execute("INSERT INTO ledger BY NAME SELECT * FROM ledger_rows")
    con.unregister("ledger_rows")


def read_compacted(con: duckdb.DuckDBPyConnection) -> set[str]:
    """The compacted files whose spools are in the database, by path relative to the store."""
    return {file for (file,) in con.execute("SELECT file FROM compacted").fetchall()}


def write_compacted(con: duckdb.DuckDBPyConnection, files: Iterable[str]) -> None:
    """Make ``files`` the known compacted files."""
    names = pa.table({"file": pa.array(sorted(files), pa.string())})
    con.begin()
    con.execute("DELETE FROM compacted")
    con.register("compacted_rows", names)
    con.execute("INSERT INTO compacted BY NAME SELECT * FROM compacted_rows")
    con.unregister("compacted_rows")
    con.commit()
