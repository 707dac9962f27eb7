"""The child process of ``query.run_query``: reads one request on stdin, writes one JSON reply on stdout."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from evaluation.results.snapshot import open_snapshot

FETCH_ROWS = 1_000
WRITE_ROWS = 100_000
LONGEST_ERROR = 400
ADDRESS_SPACE_BYTES = 3 * 2**30
"""DuckDB's own limit does not count everything (a list of 300 million numbers escapes it); this one does."""


class NotOneSelect(ValueError):
    """The text is something else than one SELECT."""


class Unwritable(ValueError):
    """The rows have a column that the file format has no type for, or the disk refuses."""


def main() -> None:
    """Answer one request: {store, sql, max_rows, cpu_seconds, file} -> {columns, types, rows, …}, or {error}.

    With a ``file`` the rows are written to it and the reply is {written, truncated}.
    """
    request = json.load(sys.stdin)
    # The reply keeps standard output for itself: whatever the engine prints (a progress bar) goes to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _limit(resource.RLIMIT_AS, ADDRESS_SPACE_BYTES)
    # Should the parent die, nobody would stop a runaway query but this.
    _limit(resource.RLIMIT_CPU, request["cpu_seconds"])
    _limit(resource.RLIMIT_CORE, 0)
    try:
        asked = Path(request["store"]), request["sql"], request["max_rows"]
        reply = write(*asked, Path(request["file"])) if request["file"] else answer(*asked)
    except (duckdb.OutOfMemoryException, MemoryError):
        reply = {"error": "the query needs more memory than a query may use: aggregate or filter first"}
    except (NotOneSelect, Unwritable, duckdb.Error) as error:
        reply = {"error": one_line(str(error))}
    with replies:
        json.dump(reply, replies, allow_nan=False)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def answer(store: Path, sql: str, max_rows: int) -> dict[str, Any]:
    """Columns, types, the first ``max_rows`` rows, and whether there were more."""
    statement = one_select(sql)
    with open_snapshot(store) as con:
        con.execute(statement)
        description = con.description or []
        rows: list[list[Any]] = []
        while len(rows) <= max_rows:
            block = con.fetchmany(min(FETCH_ROWS, max_rows + 1 - len(rows)))
            if not block:
                break
            rows.extend([json_value(value) for value in row] for row in block)
    return {
        "columns": [column[0] for column in description],
        "types": [str(column[1]) for column in description],
        "rows": rows[:max_rows],
        "truncated": len(rows) > max_rows,
    }


def write(store: Path, sql: str, max_rows: int, file: Path) -> dict[str, Any]:
    """The first ``max_rows`` rows as a Parquet file, and whether there were more."""
    import pyarrow as pa
    from pyarrow import parquet

    statement = one_select(sql)
    written = 0
    with open_snapshot(store) as con:
        reader: Any = con.execute(statement).to_arrow_reader(WRITE_ROWS)
        try:
            with parquet.ParquetWriter(file, reader.schema, compression="zstd") as writer:
                for batch in reader:
                    kept = batch.slice(0, max_rows - written)
                    writer.write_batch(kept)
                    written += kept.num_rows
                    if kept.num_rows < batch.num_rows:
                        return {"written": written, "truncated": True}
        except (pa.ArrowException, OSError) as error:
            raise Unwritable(f"the rows cannot be written as Parquet: {error}") from error
    return {"written": written, "truncated": False}


def one_select(sql: str) -> duckdb.Statement:
    """The statement of ``sql``; raises NotOneSelect for several, for none, and for any other kind."""
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise NotOneSelect(f"one SELECT statement is wanted, got {len(statements)} statements")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise NotOneSelect(f"only SELECT can be run here, not {statements[0].type.name}: the results are read-only")
    return statements[0]


def json_value(value: Any) -> Any:
    """``value`` as JSON can say it: times as ISO text, spans in seconds, bytes as hex, NaN and infinities as None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Decimal):
        if value.is_finite() and value == value.to_integral_value():
            return int(value)
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dict):
        return {str(json_value(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return str(value)


def one_line(message: str) -> str:
    """DuckDB's message without the excerpt of the statement, on one line."""
    text = " ".join(message.partition("\nLINE ")[0].split())
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"
