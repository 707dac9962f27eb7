"""`stillroom regrade`: which runs, which problems, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.finding import unknown
from evaluation.names import UnknownRunError, run_meant
from flows.errors import UsageError
from flows.report import refusals
from flows.settings import Settings

if TYPE_CHECKING:
    import duckdb

    from evaluation.problems import Problem
    from evaluation.regrading import Regrading


def print_regrading(
    settings: Settings,
    prefixes: Sequence[str],
    plan: str | None,
    benchmark: str,
    dry_run: bool,
    as_json: bool,
    console: Console,
) -> None:
    """Grade again what is stored, bring the results up to date, and print what changed. Raises UsageError."""
    from evaluation.regrading import RegradeError, regrade, stored_answers
    from evaluation.results.ingest import ingest
    from evaluation.results.snapshot import open_snapshot

    if benchmark not in BENCHMARKS:
        raise UsageError(f"--benchmark: {unknown(benchmark)}")
    with refusals():
        ingest(settings.store)
        with open_snapshot(settings.store) as snapshot:
            run_ids = find_runs(snapshot, prefixes, plan)
            answers = stored_answers(snapshot, benchmark, run_ids)
            versions = _versions(snapshot, benchmark, run_ids)
    if not answers:
        raise UsageError(f"none of these {len(run_ids)} runs has answers on {benchmark}")
    problems: dict[tuple[str, str], Problem] = {}
    try:
        for split in sorted({answer.split for answer in answers}):
            loaded = BENCHMARKS[benchmark].load(split, root=settings.benchmarks)
            problems |= {(split, problem.id): problem for problem in loaded}
        report = regrade(settings.store, BENCHMARKS[benchmark], answers, problems, dry_run=dry_run)
    except (RegradeError, ValueError) as error:
        raise UsageError(str(error)) from error
    if not dry_run:
        with refusals():
            ingest(settings.store)
    _print(report, dry_run, versions, as_json, console)


def _versions(snapshot: duckdb.DuckDBPyConnection, benchmark: str, run_ids: Sequence[str]) -> list[str]:
    """Versions of the benchmark that the runs were asked under."""
    rows = snapshot.execute(
        "SELECT DISTINCT benchmark_version FROM problems WHERE benchmark = ? AND list_contains(?, run_id) ORDER BY 1",
        [benchmark, list(run_ids)],
    ).fetchall()
    return [version for (version,) in rows]


def find_runs(snapshot: duckdb.DuckDBPyConnection, prefixes: Sequence[str], plan: str | None) -> list[str]:
    """Ids of the runs that begin with one of ``prefixes`` (all without any), of ``plan`` if one is named.

    Raises UsageError for a prefix of no run or of several, and for a plan without runs.
    """
    rows = snapshot.execute(
        "SELECT run_id FROM latest_runs WHERE ? IS NULL OR run_id IN (SELECT run_id FROM plan_cells WHERE plan = ?) "
        "ORDER BY run_id",
        [plan, plan],
    ).fetchall()
    known = [row[0] for row in rows]
    if not known:
        raise UsageError("the store has no runs" if plan is None else f"no run belongs to a plan {plan!r}")
    if not prefixes:
        return known
    try:
        return list(dict.fromkeys(run_meant(prefix, known) for prefix in prefixes))
    except UnknownRunError as error:
        raise UsageError(str(error)) from error


def _print(report: Regrading, dry_run: bool, versions: Sequence[str], as_json: bool, console: Console) -> None:
    now = BENCHMARKS[report.benchmark].version
    if as_json:
        changed = [{"before": old, "now": new, "answers": n} for (old, new), n in sorted(report.changed.items())]
        content = {
            "benchmark": report.benchmark,
            "answers": report.answers,
            "runs": report.runs,
            "graders": list(report.graders),
            "asked_under_versions": list(versions),
            "version_now": now,
            "changed": changed,
            "recorded": 0 if dry_run else report.recorded,
        }
        print(json.dumps(content, indent=2))
        return
    console.print(
        f"{report.answers} answers of {report.runs} runs on {report.benchmark}, graded by {', '.join(report.graders)}",
        highlight=False,
    )
    if any(version != now for version in versions):
        console.print(
            f"Asked under version {', '.join(versions)} of {report.benchmark}, which is {now} now: problems of the "
            "same id may ask something else.",
            style="yellow",
            highlight=False,
        )
    if report.changed:
        table = Table("verdict before", "verdict now", Column("answers", justify="right"))
        for (old, new), count in sorted(report.changed.items()):
            table.add_row(old, new, str(count))
        console.print(table)
    else:
        console.print("No verdict changes.")
    done = "would be recorded; nothing was written" if dry_run else "recorded; the old ones are kept"
    console.print(f"{report.recorded} grades {done}.", highlight=False)
