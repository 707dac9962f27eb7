"""Whether two stores hold the same numbers of one run, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

FACTS = {
    "training metrics": (
        "SELECT update, name, value FROM latest_steps WHERE run_id = $run AND NOT starts_with(name, 't_')",
        2,
    ),
    "tokens and FLOP": (
        "SELECT update, rollout_tokens, reference_tokens, teacher_tokens, auxiliary_tokens, trained_tokens, flop "
        "FROM latest_step_costs WHERE run_id = $run",
        1,
    ),
    "rollouts": (
        "SELECT update, rollout_index, problem_id, prompt_tokens, completion_tokens, truncated, verdict, score, reward "
        "FROM latest_rollouts WHERE run_id = $run",
        2,
    ),
    "answers": (
        "SELECT update, benchmark, split, problem_id, sample_index, prompt_tokens, completion_tokens, finish_reason, "
        "verdict, score, extracted FROM graded_answers WHERE run_id = $run",
        5,
    ),
    "scores": (
        "SELECT update, benchmark, split, accuracy, standard_error, score, lenient_accuracy, format_rate, "
        "truncated_rate, completion_tokens FROM scores WHERE run_id = $run AND complete",
        3,
    ),
}
"""What is compared -> its rows and how many of their columns name the row. Metrics that begin with t_ are seconds."""


@dataclass(frozen=True, slots=True)
class Equality:
    """One kind of numbers in two stores."""

    what: str
    rows: int
    """Rows of the first store."""
    missing: int
    """Rows of the first that the second does not have."""
    added: int
    """Rows of the second that the first does not have."""
    different: int
    """Rows that both have with other values."""
    first: str | None
    """The first difference, in words."""

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.added or self.different)


def compare_numbers(first: duckdb.DuckDBPyConnection, second: duckdb.DuckDBPyConnection, run_id: str) -> list[Equality]:
    """Every recorded number of the run in both snapshots, kind by kind; equal means the same bits."""
    return [
        equality(what, _rows(first, sql, run_id, width), _rows(second, sql, run_id, width))
        for what, (sql, width) in FACTS.items()
    ]


def equality(what: str, one: dict[tuple[Any, ...], Any], other: dict[tuple[Any, ...], Any]) -> Equality:
    """Two mappings from a row's name to its values, side by side."""
    missing = [key for key in one if key not in other]
    added = [key for key in other if key not in one]
    different = [key for key, values in one.items() if key in other and other[key] != values]
    first = None
    if different:
        key = different[0]
        first = f"{' '.join(map(str, key))}: {one[key]} and {other[key]}"
    elif missing or added:
        side = "only before" if missing else "only now"
        first = f"{' '.join(map(str, (missing or added)[0]))}: {side}"
    return Equality(what, len(one), len(missing), len(added), len(different), first)


def _rows(con: duckdb.DuckDBPyConnection, sql: str, run_id: str, width: int) -> dict[tuple[Any, ...], Any]:
    rows = con.execute(f"{sql} ORDER BY ALL", {"run": run_id}).fetchall()
    return {row[:width]: row[width:] for row in rows}
