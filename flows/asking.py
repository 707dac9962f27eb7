"""What `stillroom query` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from flows.errors import UsageError

PRINTED_ROWS = 1_000
WRITTEN_ROWS = 10_000_000


def print_query(store: Path, sql: str, max_rows: int | None, timeout: float, form: str, console: Console) -> None:
    """`stillroom query` as a table, JSON or CSV."""
    from evaluation.results.query import run_query
    from flows.report import refusals

    most = _check(max_rows, timeout, PRINTED_ROWS)
    with refusals():
        result = run_query(store, sql, max_rows=most, timeout_seconds=timeout)
    if form == "json":
        print(json.dumps(result.to_dict(), indent=2))
    elif form == "csv":
        print(result.to_csv(), end="")
    else:
        # Text, not markup: a cell may hold square brackets.
        table = Table(*(Column(Text(column)) for column in result.columns))
        for row in result.rows:
            table.add_row(*(Text("" if value is None else str(value)) for value in row))
        console.print(table)
    if result.truncated:
        Console(stderr=True).print(f"More than {most} rows: raise --max-rows.", style="yellow")


def write_query(store: Path, sql: str, file: Path, max_rows: int | None, timeout: float, console: Console) -> None:
    """`stillroom query --parquet FILE`; the file appears whole or not at all."""
    from evaluation.results.query import query_to_parquet
    from flows.report import refusals

    most = _check(max_rows, timeout, WRITTEN_ROWS)
    if not file.absolute().parent.is_dir():
        raise UsageError(f"--parquet {file}: there is no folder {file.absolute().parent}")
    with refusals():
        rows, truncated = query_to_parquet(store, sql, file, max_rows=most, timeout_seconds=timeout)
    console.print(f"{rows} rows in {file}", highlight=False, markup=False)
    if truncated:
        Console(stderr=True).print(f"More than {most} rows: raise --max-rows.", style="yellow")


def _check(max_rows: int | None, timeout: float, default: int) -> int:
    if max_rows is not None and max_rows < 1:
        raise UsageError(f"--max-rows must be 1 or more, not {max_rows}")
    if not timeout > 0:
        raise UsageError(f"--timeout must be above 0 seconds, not {timeout:g}")
    return max_rows or default
