"""Runs at equal cost: the last whole evaluation of each run within a budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.names import nearest
from evaluation.results.plans import CompareError
from evaluation.results.records import COST_KEYS
from evaluation.results.selection import BASE, SelectedRun

if TYPE_CHECKING:
    import duckdb

TOTAL_TOKENS = ("rollout_tokens", "reference_tokens", "teacher_tokens", "auxiliary_tokens")
"""What ``total_tokens`` adds up. Tokens in the loss are these again, so they are not added."""

_KNOWN = " OR ".join(f"s.{key} IS NOT NULL" for key in TOTAL_TOKENS)
_TOTAL = " + ".join(f"coalesce(s.{key}, 0)" for key in TOTAL_TOKENS)
BUDGETS = {
    "updates": "s.update",
    "rollout_tokens": "s.rollout_tokens",
    "total_tokens": f"CASE WHEN {_KNOWN} THEN {_TOTAL} END",
    "flop": "s.flop",
    "seconds": "s.wall_seconds",
}
"""What runs may be compared at equal amounts of -> SQL over ``scores s``."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What every row may have spent at its evaluation. ``is_default``: the smallest spend of a row."""

    by: str
    value: float
    is_default: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One whole evaluation of a run on one benchmark."""

    update: int
    n_problems: int
    n_answers: int
    n_unscored: int
    spent: float | None
    """In the budget's unit; None without a budget, or where it was not measured."""
    cost: tuple[float | None, ...]
    """In the order of COST_KEYS."""


def check_budget(by: str | None, value: float | None) -> None:
    """Raises CompareError for an unknown unit, an amount that is none, and an amount without a unit."""
    if by is not None and by not in BUDGETS:
        raise CompareError(f"--budget-by: unknown {by!r}{nearest(by, BUDGETS)}")
    if value is not None and by is None:
        raise CompareError(f"--budget {value:g} of what? Add --budget-by {', '.join(BUDGETS)}")
    if value is not None and not value > 0:
        raise CompareError(f"--budget must be above 0, not {value:g}")


def find_budget(
    con: duckdb.DuckDBPyConnection,
    by: str,
    value: float | None,
    runs: Sequence[SelectedRun],
    benchmarks: Sequence[str],
    split: str,
) -> Budget:
    """``value``, or for None what the cheapest row needs for the last evaluations of all its seeds.

    Raises CompareError where nothing was measured. A row's spend is that of its most expensive seed. The untrained
    model spends nothing and does not count.
    """
    if value is not None:
        return Budget(by, value, is_default=False)
    spends: dict[tuple[str, str, str], float] = defaultdict(float)
    for benchmark in benchmarks:
        last = last_checkpoints(con, runs, benchmark, split, by=by)
        for run in runs:
            checkpoint = last.get(run.run_id)
            if checkpoint is not None and checkpoint.spent is not None and run.method != BASE:
                spends[run.cell] = max(spends[run.cell], checkpoint.spent)
    if not spends:
        raise CompareError(f"--budget-by {by}: no finished run has an evaluation with its {by} measured")
    return Budget(by, min(spends.values()), True)


def last_checkpoints(
    con: duckdb.DuckDBPyConnection,
    runs: Sequence[SelectedRun],
    benchmark: str,
    split: str,
    *,
    by: str | None = None,
    within: float | None = None,
) -> dict[str, Checkpoint]:
    """Run id -> its last whole evaluation, with ``within`` the last that spent no more; done runs only.

    Under a budget a trained run needs an evaluation after training began: update 0 is the untrained model.
    """
    done = {run.run_id: run.method == BASE for run in runs if run.status == "done" and not run.is_archived}
    spent = BUDGETS[by] if by is not None else "NULL::DOUBLE"
    costs = ", ".join(f"s.{key}" for key in COST_KEYS)
    rows = con.execute(
        f"""
        SELECT s.run_id, s.update, s.n_problems, s.n_answers, s.n_unscored,
               CASE WHEN r.is_base AND {by is not None} THEN 0 ELSE {spent} END AS spent, {costs}
        FROM scores s JOIN (SELECT unnest($runs) AS run_id, unnest($is_base) AS is_base) r USING (run_id)
        WHERE s.complete AND s.benchmark = $benchmark AND s.split = $split
          AND ($within IS NULL OR r.is_base OR (s.update > 0 AND {spent} <= $within))
        QUALIFY s.update = max(s.update) OVER (PARTITION BY s.run_id)
        """,
        {
            "runs": list(done),
            "is_base": list(done.values()),
            "benchmark": benchmark,
            "split": split,
            "within": within,
        },
    ).fetchall()
    return {run: Checkpoint(*rest[:5], cost=tuple(rest[5:])) for run, *rest in rows}


def why_not(
    run: SelectedRun, benchmark: str, split: str, budget: Budget | None, last: Mapping[str, Checkpoint]
) -> str | None:
    """Why a run has no checkpoint to compare at; ``last`` are those without the budget."""
    if run.is_archived:
        return "archived"
    if run.status != "done":
        return {"failed": "failed", "unknown": "never started"}.get(run.status, f"not finished ({run.status})")
    if run.run_id not in last:
        return f"no whole evaluation on {benchmark}, {split} split"
    if budget is not None and last[run.run_id].spent is None:
        return f"its {budget.by} were not measured"
    return f"no evaluation within {budget.value:g} {budget.by}" if budget is not None else None
