"""What commands print: the table of a study and the next commands, query results, checks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.comparing import print_comparison, print_costs, print_trials
from flows.errors import UsageError
from flows.tuning import failed_before

if TYPE_CHECKING:
    from flows.doctor import Check
    from flows.prepare import PreparedPlan
    from flows.settings import Settings
    from flows.sweep import StudyOutcome


@contextlib.contextmanager
def refusals() -> Generator[None]:
    """The results' own complaints about a request, as refusals of the command line."""
    from evaluation.results.plans import CompareError
    from evaluation.results.query import QueryError
    from evaluation.results.store import NoSnapshotError, StoreBusyError, StoreDamagedError

    try:
        yield
    except (NoSnapshotError, CompareError, QueryError, StoreBusyError, StoreDamagedError) as error:
        raise UsageError(str(error)) from error


def print_outcome(outcome: StudyOutcome, settings: Settings, console: Console) -> None:
    """The study's table, its notes, of a tuned plan its trials and full cost, what failed, and what to type next."""
    plan = outcome.prepared.plan
    console.print()
    if any(run.folder.finished() for run in outcome.prepared.runs):
        print_comparison(settings.store, "table", console, plan=plan.name, split=plan.evaluation.split)
    if plan.notes:
        console.print(plan.notes.rstrip(), highlight=False, markup=False)
    if plan.tuning is not None and any(run.folder.finished() for run in outcome.prepared.trials):
        print_trials(settings.store, plan.name, "table", console)
        print_costs(settings.store, plan.name, "table", console)
    trials = f"{outcome.trials_now} tuning trials and " if plan.tuning is not None else ""
    trials_before = f"{outcome.trials_before} and " if plan.tuning is not None else ""
    console.print(
        f"\n{trials}{outcome.done_now} runs done now, {trials_before}{outcome.done_before} were done before, "
        f"in {outcome.seconds:.0f} s. Store: {settings.store}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if outcome.stopped:
        console.print("Stopped on request. The same command goes on from here.", style="yellow")
        return
    for kind, style, failures in (("failed", "red", outcome.failures), ("lost trial", "yellow", outcome.lost)):
        for name, error in failures.items():
            console.print(f"{kind}: {name}: {error}", style=style, highlight=False, markup=False, soft_wrap=True)
    _print_next(plan.name, console)


def _print_next(plan: str, console: Console) -> None:
    # As it can be typed here: the console script of an environment that is not activated has no short name.
    is_script = os.path.basename(sys.argv[0]) == "stillroom" and not shutil.which("stillroom")
    program = os.path.relpath(sys.argv[0]) if is_script else "stillroom"
    console.print("\nNext:")
    for command, meaning in (
        ("stillroom dashboard", "browse leaderboard, curves and answers"),
        (f"stillroom compare {plan} --format markdown", "the table for a document; also csv, json"),
        ('stillroom query "select label, seed, accuracy from final_scores order by all"', "ask anything, read-only"),
        ("stillroom run opsd --benchmark addition --set views.teacher.weights=ema", "one ablation"),
        ("stillroom methods opsd", "a method's equation and every value that can be changed"),
    ):
        command = command.replace("stillroom", program, 1)
        console.print(f"  {command:<86} [dim]{meaning}[/dim]", highlight=False, soft_wrap=True)


def print_ingest(store: Path, rebuild: bool, as_json: bool, console: Console) -> None:
    """`stillroom ingest`."""
    from evaluation.results import ingest

    with refusals():
        report = (ingest.rebuild if rebuild else ingest.ingest)(store)
    if as_json:
        print(json.dumps(asdict(report), indent=2, default=str))
    else:
        for name, value in asdict(report).items():
            console.print(f"{name}: {value}", highlight=False, markup=False)


def print_dry_run(prepared: PreparedPlan, console: Console) -> None:
    """`stillroom sweep --dry-run`: trials and runs, and what is done."""
    table = Table("cell", "seed", "run", "state")
    for run in (*prepared.trials, *prepared.runs):
        label = run.cell.label
        if run.cell.tuned_like is not None:
            values = prepared.choices[run.cell.tuned_like].values
            label = f"{label}, chosen: {', '.join(f'{path}={value}' for path, value in values.items())}"
        state = "done" if run.folder.finished() else "to do"
        if run.cell.trial_of is not None and state == "to do" and failed_before(run.folder.path):
            state = "failed, to do again"
        table.add_row(Text(label), str(run.cell.seed), run.run_id, state)
    for cell in prepared.waiting:
        table.add_row(Text(cell.label), str(cell.seed), "chosen by tuning", "to do")
    console.print(table)
    for reason in prepared.refused.values():
        console.print(reason, style="red", highlight=False, markup=False, soft_wrap=True)
    missing = prepared.missing()
    trials = sum(run.cell.trial_of is not None for run in missing)
    text = f"{len(missing) - trials + len(prepared.waiting)} of {len(prepared.runs) + len(prepared.waiting)} runs to do"
    if prepared.plan.tuning is not None:
        text = f"{trials} of {len(prepared.trials)} tuning trials and {text}"
    console.print(f"{text}; nothing was started.", highlight=False)


def checks_rows(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [asdict(check) for check in checks]


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """`stillroom doctor`."""
    words = {True: "[green]ok[/green]", False: "[red]FAILED[/red]", None: "[yellow]note[/yellow]"}
    table = Table("check", "", "found", "what to do")
    for check in checks:
        table.add_row(Text(check.name), words[check.ok], Text(check.detail), Text(check.fix))
    console.print(table)
