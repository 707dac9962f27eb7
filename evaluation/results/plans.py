"""Finding a plan and its benchmarks in a snapshot, with errors that name what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evaluation.names import nearest
from evaluation.results.records import tuning_plan

if TYPE_CHECKING:
    import duckdb

METRICS = ("accuracy", "score", "lenient_accuracy", "format_rate")
"""Columns of ``problem_scores`` that can be compared."""


class CompareError(ValueError):
    """Nothing to compare, or a name that is not there; one line with the nearest valid name."""


def find_plan(con: duckdb.DuckDBPyConnection, plan: str | None) -> tuple[str, str]:
    """Name and edition of a plan, for None of the one recorded last (trials of tuning aside); raises CompareError."""
    rows = con.execute(
        "SELECT plan, any_value(plan_hash) FROM plan_cells GROUP BY plan ORDER BY max(written_at) DESC, plan"
    ).fetchall()
    if not rows:
        raise CompareError("no plan has been recorded in this store yet: run `stillroom demo` or `stillroom sweep`")
    if plan is None:
        # The trials of a plan are shown when they are asked for.
        return next((row for row in rows if row[0] != tuning_plan(row[0].partition(":")[0])), rows[0])
    for found in rows:
        if found[0] == plan:
            return found
    raise CompareError(f"unknown plan {plan!r}{nearest(plan, [row[0] for row in rows])}")


def find_benchmarks(
    con: duckdb.DuckDBPyConnection, title: str, runs: Sequence[str], benchmark: str | None, split: str
) -> list[str]:
    """The benchmarks that ``runs`` were evaluated on (or the one named), in order; raises CompareError.

    ``title`` is what messages call the runs.
    """
    found = con.execute(
        """
        SELECT DISTINCT benchmark, split FROM latest_evaluations
        WHERE list_contains($runs, run_id) ORDER BY ALL
        """,
        {"runs": list(runs)},
    ).fetchall()
    known = [name for name, its_split in found if its_split == split]
    if benchmark is not None and benchmark not in known:
        raise CompareError(
            f"plan {title!r} has no evaluation on {benchmark!r}, {split} split{nearest(benchmark, known)}"
        )
    if not known:
        splits = sorted({its_split for _, its_split in found})
        raise CompareError(
            f"plan {title!r} has no finished evaluation on the {split} split yet{nearest(split, splits)}"
        )
    return known if benchmark is None else [benchmark]
