"""The command line: ``stillroom …``. Heavy libraries are imported by the commands that need them, on use."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from flows.errors import StudyError, UsageError
from flows.settings import Settings, read_settings

if TYPE_CHECKING:
    from flows.plan_spec import Plan

USAGE_ERROR = 2
"""Exit code for input that is refused before any work starts."""

app = App(
    name="stillroom",
    help="The laboratory for on-policy self-distillation of language models.",
    version_flags=["--version"],
    exit_on_error=False,
    print_error=False,
)

Store = Annotated[Path | None, Parameter(help="Folder of runs and results (default: $STILLROOM_STORE or ./store).")]
PIPE_WIDTH = 120
"""Columns of tables that are not printed to a terminal."""

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]

console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


# --- running -----------------------------------------------------------------------------------------------------


@app.command
def demo(*, store: Store = None) -> int:
    """Run the study flows/plans/demo.yaml and print its table. Running it again does only what is missing."""
    return sweep("demo", store=store)


@app.command
def sweep(plan: str, *, store: Store = None, dry_run: bool = False) -> int:
    """Run what is missing of a plan, and print its table.

    Parameters
    ----------
    plan
        A plan file, or the name of one that ships (see `stillroom plans`).
    dry_run
        List the runs and what is already done; start nothing.
    """
    from flows.plan import load_plan

    return _sweep(load_plan(plan), read_settings(store), dry_run)


@app.command
def run(
    method: str,
    *,
    benchmark: str,
    model: str = "tiny-demo",
    preset: str | None = None,
    updates: int = 40,
    seeds: tuple[int, ...] = (0,),
    problems: int | None = 200,
    set: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    store: Store = None,
) -> int:
    """Train one method on one benchmark, outside any plan file.

    Parameters
    ----------
    method
        A method's key (see `stillroom methods`).
    benchmark
        Where training and test problems come from: a benchmark's name (see `stillroom benchmarks`).
    model
        A shipped base model, a local folder, or a hub id.
    preset
        Settings to start from (see `stillroom methods NAME`); default: the paper's, or "tiny" for a tiny model.
    updates
        How many updates.
    seeds
        One run each.
    problems
        Evaluate on the first so many test problems.
    set
        Change a value of the method: views.teacher.weights=ema (any number of times). The method without the
        changes is run beside it.
    """
    from flows.adhoc import adhoc_plan

    changes = [_assignment(text) for text in set]
    if len(dict(changes)) < len(changes):
        raise UsageError("--set names one path twice")
    plan = adhoc_plan(method, benchmark, model, preset, updates, seeds, problems, dict(changes))
    return _sweep(plan, read_settings(store), dry_run=False)


def _sweep(plan: Plan, settings: Settings, dry_run: bool) -> int:
    from flows.environment import prepare_environment
    from flows.report import print_dry_run, print_outcome

    prepare_environment(settings.store)
    if dry_run:
        from flows.prepare import prepare
        from flows.tuning import failed_before

        print_dry_run(prepare(plan, settings, gave_up=failed_before), console)
        return 0
    from flows.progress import watch_runs
    from flows.sweep import run_plan

    outcome = run_plan(
        plan,
        settings,
        notify=lambda line: console.print(line, style="dim", highlight=False, markup=False),
        watch=lambda runs: watch_runs(runs, console),
    )
    print_outcome(outcome, settings, console)
    return 1 if outcome.failures or outcome.stopped else 0


def _assignment(text: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UsageError(f"--set {text!r}: write PATH=VALUE, e.g. views.teacher.weights=ema")
    try:
        return path, YAML(typ="safe").load(value)
    except YAMLError as error:
        raise UsageError(f"--set {text!r}: {value!r} is not a YAML value") from error


# --- reading -----------------------------------------------------------------------------------------------------


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
        _print(method_rows() if json else table_of(method_rows()), json)
    else:
        _print(METHODS[name].model_dump(mode="json") if json else describe_method(METHODS[name]), json)
    return 0


@app.command
def benchmarks(*, json: Json = False) -> int:
    """List the benchmarks, their licences and whether their data is here."""
    from flows.catalogue import benchmark_rows, table_of

    rows = benchmark_rows(read_settings().benchmarks)
    _print(rows if json else table_of(rows), json)
    return 0


@app.command
def plans(*, json: Json = False) -> int:
    """List the plans that ship."""
    from flows.catalogue import plan_rows, table_of

    rows = plan_rows()
    _print(rows if json else table_of(rows), json)
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
    _print(rows if json else table_of(rows), json)
    return 0


@app.command
def ingest(*, rebuild: bool = False, json: Json = False, store: Store = None) -> int:
    """Bring the results up to date with the runs' spools.

    Parameters
    ----------
    rebuild
        Make the database anew from all spools.
    """
    from flows.report import print_ingest

    print_ingest(read_settings(store).store, rebuild, json, console)
    return 0


@app.command
def dashboard(*, port: int = 8501, open_browser: bool = False, store: Store = None) -> int:
    """Show the results in the browser, on this machine only."""
    from dashboard.serve import serve
    from flows.environment import prepare_environment

    settings = read_settings(store)
    prepare_environment(settings.store)
    return serve(settings.store, port, open_browser)


@app.command
def doctor(*, quick: bool = False, json: Json = False, store: Store = None) -> int:
    """Check this machine: versions, devices, sandbox, Ray, Prefect, store.

    Parameters
    ----------
    quick
        Leave out what starts processes (Ray, Prefect, the sandbox).
    """
    from flows.doctor import diagnose
    from flows.environment import prepare_environment
    from flows.report import checks_rows, print_checks

    settings = read_settings(store)
    prepare_environment(settings.store)
    checks = diagnose(settings.store, deep=not quick)
    if json:
        _print(checks_rows(checks), True)
    else:
        print_checks(checks, console)
    return 1 if any(check.ok is False for check in checks) else 0


def _print(content: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(content, indent=2, default=str))
    elif isinstance(content, Table | str):
        console.print(content, highlight=False)
    else:
        for part in content:
            console.print(part, highlight=False)


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Refused input exits with 2 and one line on stderr."""
    complaints = Console(stderr=True, soft_wrap=True)
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        code = command(*bound.args, **bound.kwargs)
    except cyclopts.CycloptsError as error:
        complaints.print(f"stillroom: {' '.join(str(error).split())}", style="red", highlight=False, markup=False)
        sys.exit(USAGE_ERROR)
    except UsageError as error:
        complaints.print(f"stillroom: {error}", style="red", highlight=False, markup=False)
        sys.exit(USAGE_ERROR)
    except StudyError as error:
        complaints.print(f"stillroom: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
