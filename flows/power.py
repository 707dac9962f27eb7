"""`stillroom power`: how many problems or seeds a comparison needs, from the spread of a plan or a given one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evaluation.statistics import CONFIDENCE, Spread, detectable, problems_needed, seeds_needed
from flows.errors import UsageError

DEFAULT_PROBLEMS = 500
"""Problems of a benchmark that is not named."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    delta: float
    seeds: int
    problems: int
    power: float


def check_asked(delta: float, seeds: int, problems: int, power: float) -> Asked:
    """Raises UsageError for numbers that mean nothing."""
    if not 0 < delta <= 1:
        raise UsageError(f"--delta {delta:g}: a difference is a share above 0 and up to 1, e.g. 0.02 for two points")
    if seeds < 1 or problems < 1:
        raise UsageError("--seeds and --problems count from 1")
    if not 0 < power < 1:
        raise UsageError(f"--power {power:g}: a probability between 0 and 1")
    return Asked(delta, seeds, problems, power)


def print_power(
    store: Path,
    plan: str | None,
    baseline: str | None,
    differ: float,
    seeds: int | None,
    problems: int | None,
    delta: float,
    power: float,
    as_json: bool,
    console: Console,
) -> None:
    """One row a method of ``plan`` against its baseline, or one for two models that differ on a share of problems."""
    if not 0 < differ <= 1:
        raise UsageError(f"--differ {differ:g}: a share of the problems above 0 and up to 1")
    # One answer each: a difference is -1, 0 or 1, and its square is 1 on the problems where they differ.
    spreads = [("two models", "", Spread(0.0, differ, 0.0), 1, DEFAULT_PROBLEMS)]
    if plan is not None:
        spreads = _spreads(store, plan, baseline)
    rows = []
    for label, benchmark, spread, own_seeds, own_problems in spreads:
        asked = check_asked(delta, seeds or own_seeds, problems or own_problems, power)
        rows.append({"label": label, "benchmark": benchmark, **_row(spread, asked)})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    names = ("method", "benchmark", "seeds", "problems", "sees from", "problems needed", "seeds needed")
    table = Table(*names)
    for row in rows:
        table.add_row(
            Text(row["label"]),
            row["benchmark"],
            str(row["seeds"]),
            str(row["problems"]),
            f"{100 * row['detectable']:.1f} points",
            *("never" if row[name] is None else str(row[name]) for name in ("problems_needed", "seeds_needed")),
        )
    console.print(table)
    console.print(
        f"To see {100 * delta:g} points with probability {power:g} at p below {1 - CONFIDENCE:.2g}: "
        "problems needed with these seeds, seeds needed with these problems. Before Holm's adjustment, which asks for "
        "more. Below three seeds nothing is known of how seeds differ.",
        highlight=False,
        markup=False,
    )


def _row(spread: Spread, asked: Asked) -> dict[str, Any]:
    return {
        "seeds": asked.seeds,
        "problems": asked.problems,
        "variance_of_seeds": spread.seeds,
        "variance_of_problems": spread.problems,
        "variance_of_rest": spread.rest,
        "detectable": detectable(spread, asked.seeds, asked.problems, power=asked.power),
        "problems_needed": problems_needed(spread, asked.delta, asked.seeds, power=asked.power),
        "seeds_needed": seeds_needed(spread, asked.delta, asked.problems, power=asked.power),
    }


def _spreads(store: Path, plan: str, baseline: str | None) -> list[tuple[str, str, Spread, int, int]]:
    """(label, benchmark, spread, seeds, problems) of every row of the plan that has a difference."""
    from evaluation.results.compare import compare
    from evaluation.results.snapshot import open_snapshot
    from flows.report import refusals

    with refusals(), open_snapshot(store) as snapshot:
        rows = compare(snapshot, plan=plan, baseline=baseline).rows
    found = [
        (row.label, row.benchmark, row.delta_spread, row.n_pairs, row.n_paired_problems)
        for row in rows
        if row.delta_spread is not None
    ]
    if not found:
        raise UsageError(f"plan {plan!r} has no row with a baseline to measure against: name one with --baseline")
    return found
