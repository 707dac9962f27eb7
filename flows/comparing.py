"""What `stillroom compare`, `power` and `diff` print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from flows.errors import UsageError

if TYPE_CHECKING:
    import duckdb

    from evaluation.results.comparison import Comparison
    from evaluation.results.trials import Sheet

WIDE_COLUMNS = 150
"""A terminal this wide gets every column."""

FORMATS = ("table", "markdown", "csv", "json")
COMPARISON_FORMATS = (*FORMATS, "latex")


def print_comparison(store: Path, form: str, console: Console, *, bold_best: bool = False, **asked: Any) -> None:
    """`stillroom compare` in one of COMPARISON_FORMATS; ``asked`` are the arguments of ``compare``."""
    from evaluation.results.compare import compare
    from evaluation.results.snapshot import open_snapshot
    from flows.report import refusals

    refuse_format(form, COMPARISON_FORMATS)
    if bold_best and form != "latex":
        raise UsageError("--bold-best is for --format latex")
    with refusals(), open_snapshot(store) as snapshot:
        comparison = compare(snapshot, **asked)
    _print_comparison(comparison, form, bold_best, console)


def _print_comparison(comparison: Comparison, form: str, bold_best: bool, console: Console) -> None:
    from evaluation.results.tables import render, to_csv, to_markdown

    if form == "json":
        print(json.dumps(comparison.to_dict(), indent=2))
    elif form == "csv":
        print(to_csv(comparison), end="")
    elif form == "markdown":
        print(to_markdown(comparison), end="")
    elif form == "latex":
        from evaluation.results.latex import to_latex

        print(to_latex(comparison, bold_best=bold_best), end="")
    else:
        console.print(render(comparison, wide=console.width >= WIDE_COLUMNS))


def print_trials(store: Path, plan: str | None, form: str, console: Console) -> None:
    """`stillroom compare --tuning` in one of FORMATS: the trials of a plan, their scores, what was chosen."""
    from evaluation.results.trials import trials_sheet, tuning_trials

    print_sheet(store, lambda snapshot: trials_sheet(*tuning_trials(snapshot, plan)), form, console)


def print_costs(store: Path, plan: str | None, form: str, console: Console) -> None:
    """`stillroom compare --cost` in one of FORMATS: what a plan took in all, runs and trials apart."""
    from evaluation.results.trials import costs_sheet, plan_costs

    print_sheet(store, lambda snapshot: costs_sheet(*plan_costs(snapshot, plan)), form, console)


def print_sheet(store: Path, read: Callable[[duckdb.DuckDBPyConnection], Sheet], form: str, console: Console) -> None:
    """A sheet that ``read`` makes of the snapshot, in one of FORMATS."""
    from evaluation.results.snapshot import open_snapshot
    from flows.report import refusals

    refuse_format(form, FORMATS)
    with refusals(), open_snapshot(store) as snapshot:
        sheet = read(snapshot)
    if form == "json":
        print(json.dumps(sheet.records, indent=2))
    elif form == "csv":
        print(sheet.to_csv(), end="")
    elif form == "markdown":
        print(sheet.to_markdown(), end="")
    else:
        console.print(sheet.render())


def refuse_format(form: str, formats: tuple[str, ...]) -> None:
    if form not in formats:
        raise UsageError(f"--format {form!r} is none of {', '.join(formats)}")


def print_differences(store: Path, first: str, second: str, as_json: bool, console: Console) -> None:
    """`stillroom diff`: the fields in which two runs differ, nested; what they were given and where they ran apart."""
    from evaluation.results.differences import Sides, differences
    from evaluation.results.snapshot import open_snapshot
    from flows.report import refusals

    with refusals(), open_snapshot(store) as snapshot:
        found = differences(snapshot, first, second)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    for part, tree in (("specification", found.spec), ("provenance", found.provenance)):
        table = Table(part, *(Column(Text(run)) for run in found.runs))

        def add(node: Any, depth: int, table: Table = table) -> None:
            for name, below in node.items():
                shown = Text("  " * depth + str(name))
                if isinstance(below, Sides):
                    table.add_row(shown, Text(below.text(0)), Text(below.text(1)))
                else:
                    table.add_row(shown, "", "")
                    add(below, depth + 1)

        add(tree, 0)
        if tree:
            console.print(table)
        else:
            console.print(f"{part}: no difference", highlight=False)
