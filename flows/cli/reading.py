"""Commands that show what there is: methods, benchmarks, plans, compare, query, status."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from flows.cli.app import Json, Store, app, console, print_content
from flows.errors import UsageError
from flows.settings import read_settings


@app.command
def methods(name: str | None = None, *, json: Json = False, markdown: bool = False, docs: bool = False) -> int:
    """List the methods, or show one: equation, every field with its meaning, ablations, presets, open choices.

    Parameters
    ----------
    markdown
        Print the list as the table of the README, or the method as its section of docs/methods.md.
    docs
        Print docs/methods.md: all methods, and what their fields mean.
    """
    from evaluation.names import nearest
    from flows.catalogue import table_of
    from flows.method_docs import method_section, methods_document
    from flows.method_pages import describe_method
    from flows.method_table import method_rows, methods_markdown
    from training.methods import METHODS

    if name is not None and name not in METHODS:
        raise UsageError(f"unknown method {name!r}{nearest(name, sorted(METHODS))}")
    if docs:
        print(methods_document(), end="")
    elif markdown:
        print(methods_markdown() if name is None else method_section(METHODS[name]))
    elif name is None:
        print_content(method_rows() if json else table_of(method_rows()), json)
    else:
        print_content(METHODS[name].model_dump(mode="json") if json else describe_method(METHODS[name]), json)
    return 0


@app.command
def benchmarks(*, json: Json = False) -> int:
    """List the benchmarks, their licences and whether their data is here."""
    from flows.catalogue import benchmark_rows, table_of

    rows = benchmark_rows(read_settings().benchmarks)
    print_content(rows if json else table_of(rows), json)
    return 0


@app.command
def plans(*, json: Json = False) -> int:
    """List the plans that ship."""
    from flows.catalogue import plan_rows, table_of

    rows = plan_rows()
    print_content(rows if json else table_of(rows), json)
    return 0


@app.command
def compare(
    plan: str | None = None,
    *,
    benchmark: str | None = None,
    split: str = "test",
    baseline: str | None = None,
    tuning: Annotated[bool, Parameter(negative=())] = False,
    cost: Annotated[bool, Parameter(negative=())] = False,
    format: Annotated[str, Parameter(help="table, markdown, csv or json.")] = "table",
    json: Json = False,
    store: Store = None,
) -> int:
    """Compare the rows of a plan: mean accuracy over seeds with its interval, cost, paired difference and p.

    Parameters
    ----------
    plan
        The plan's name; default: the one run last.
    benchmark
        Default: all of them.
    split
        Split the scores are taken from.
    baseline
        Label of the row that differences refer to; default: the untrained model.
    tuning
        Show the trials of the plan's tuning instead: their scores and which values were chosen.
    cost
        Show what the plan took in all instead: tokens, FLOP and seconds, of its runs and of its trials apart.
    """
    from flows.report import print_comparison, print_costs, print_trials

    folder, form = read_settings(store).store, "json" if json else format
    if tuning and cost:
        raise UsageError("--tuning and --cost are two tables: ask for one at a time")
    if (tuning or cost) and (benchmark is not None or baseline is not None):
        raise UsageError("--tuning and --cost show a plan whole: leave --benchmark and --baseline out")
    if tuning:
        print_trials(folder, plan, form, console)
    elif cost:
        print_costs(folder, plan, form, console)
    else:
        print_comparison(folder, plan, benchmark, split, baseline, form, console)
    return 0


@app.command
def query(
    sql: str, *, json: Json = False, csv: bool = False, max_rows: int = 1000, timeout: float = 30.0, store: Store = None
) -> int:
    """Ask one SELECT of the published results, read-only. Tables and views are described in docs/results.md.

    Parameters
    ----------
    sql
        One SELECT statement, e.g. "select * from final_scores".
    csv
        Print CSV.
    max_rows
        Stop after so many rows.
    timeout
        Seconds after which the query is interrupted.
    """
    from flows.report import print_query

    print_query(
        read_settings(store).store, sql, max_rows, timeout, "json" if json else "csv" if csv else "table", console
    )
    return 0


@app.command
def status(plan: str | None = None, *, json: Json = False, store: Store = None) -> int:
    """What is done, running, failed or missing, from the runs' folders."""
    from flows.catalogue import table_of
    from flows.status import status_rows

    rows = status_rows(read_settings(store).store, plan)
    print_content(rows if json else table_of(rows), json)
    return 0
