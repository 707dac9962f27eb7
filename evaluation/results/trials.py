"""The trials of a plan's tuning and the plan's full cost, row by row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evaluation.results.plans import CompareError, find_plan
from evaluation.results.records import tuning_plan
from evaluation.results.tables import count_text, flop_text

if TYPE_CHECKING:
    import duckdb
    from rich.table import Table

TUNING = tuning_plan("")

COSTS = ("rollout_tokens", "reference_tokens", "teacher_tokens", "auxiliary_tokens", "trained_tokens")


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One combination of values that was tried for a cell."""

    label: str
    values: dict[str, Any]
    n_seeds: int
    n_done: int
    split: str | None
    accuracy: float | None
    """Mean over seeds of the mean over benchmarks; None unless every seed has one."""
    status: str
    is_chosen: bool
    error: str | None
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CostRow:
    """What the runs of one cell took in all, or the trials that chose its settings."""

    label: str
    is_tuning: bool
    runs: int
    rollout_tokens: int
    reference_tokens: int
    teacher_tokens: int
    auxiliary_tokens: int
    trained_tokens: int
    flop: float | None
    wall_seconds: float | None


def tuning_trials(con: duckdb.DuckDBPyConnection, plan: str | None = None) -> tuple[str, list[TrialRow]]:
    """The plan's name (None: the one recorded last) and its trials; raises CompareError if it has none."""
    tuned = con.execute("SELECT 1 FROM tuning_trials WHERE plan = ? LIMIT 1", [plan]).fetchone()
    # Until the first run of its table is recorded a plan has trials alone.
    name = plan if plan and tuned else find_plan(con, plan)[0].removesuffix(TUNING)
    rows = con.execute(
        """
        SELECT label, axes, count(*), count(*) FILTER (status = 'done'), any_value(split),
               CASE WHEN count(accuracy) = count(*) THEN avg(accuracy ORDER BY seed) END,
               CASE WHEN count(DISTINCT status) = 1 THEN any_value(status)
                    WHEN bool_or(status = 'failed') THEN 'failed' ELSE 'running' END,
               bool_and(is_chosen), first(error ORDER BY seed) FILTER (status = 'failed'), list(run_id ORDER BY seed)
        FROM tuning_trials WHERE plan = ?
        GROUP BY position, label, axes ORDER BY position
        """,
        [name],
    ).fetchall()
    if not rows:
        raise CompareError(f"plan {name!r} has no tuning trials: its file has no `tuning`, or none was started")
    return name, [_trial_row(*row) for row in rows]


def _trial_row(label: str, axes: str, *rest: Any) -> TrialRow:
    *facts, run_ids = rest
    return TrialRow(label, json.loads(axes), *facts, run_ids=tuple(run_ids))


def plan_costs(con: duckdb.DuckDBPyConnection, plan: str | None = None) -> tuple[str, list[CostRow]]:
    """The plan's name (None: the one recorded last) and its full costs, each label's own runs before its trials."""
    name, _ = find_plan(con, plan)
    rows = con.execute(
        f"""
        SELECT label, is_tuning, runs, {", ".join(COSTS)}, flop, wall_seconds
        FROM (
            SELECT *, min(position) FILTER (NOT is_tuning) OVER (PARTITION BY label) AS place,
                   min(position) OVER (PARTITION BY label) AS first_position
            FROM plan_costs WHERE plan = ?
        )
        ORDER BY place NULLS LAST, first_position, label, is_tuning
        """,
        [name],
    ).fetchall()
    return name, [CostRow(*row) for row in rows]


# --- printing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows as they are printed: a title, columns, cells, notes; ``records`` holds the unrounded values."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    records: tuple[dict[str, Any], ...]

    def render(self) -> Table:
        """For the terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title), caption=Text("\n".join(self.notes)), caption_justify="left")
        for column, is_number in zip(self.columns, self.numeric, strict=True):
            table.add_column(column, justify="right" if is_number else "left")
        for row in self.cells:
            table.add_row(*map(Text, row))
        return table

    def to_markdown(self) -> str:
        """For a document."""
        rules = ["--:" if is_number else "---" for is_number in self.numeric]
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.cells]
        lines = [f"| {' | '.join(row)} |" for row in [self.columns, rules, *rows]]
        return "\n".join([f"**{self.title}**", "", *lines, "", *(f"- {note}" for note in self.notes), ""])

    def to_csv(self) -> str:
        """Every value unrounded; an empty field is "not known"."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.records[0]) if self.records else ["label"], lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            plain = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in record.items()}
            writer.writerow({key: " ".join(v) if isinstance(v, tuple) else v for key, v in plain.items()})
        return text.getvalue()


def trials_sheet(plan: str, rows: Sequence[TrialRow]) -> Sheet:
    """The trials with their scores; the chosen ones are marked."""
    splits = ", ".join(sorted({row.split for row in rows if row.split})) or "no"
    cells = tuple(
        (
            row.label,
            ", ".join(f"{path}={value}" for path, value in row.values.items()),
            str(row.n_seeds) if row.n_done == row.n_seeds else f"{row.n_done} of {row.n_seeds}",
            "–" if row.accuracy is None else f"{100 * row.accuracy:.1f}",
            row.status,
            "chosen" if row.is_chosen else "",
        )
        for row in rows
    )
    notes = [
        "Accuracy: last evaluation, mean over seeds and benchmarks. The highest is chosen, of equal ones the smaller "
        "value; a failed trial loses. The table's runs have other seeds and another split."
    ]
    notes += _edges(rows)
    notes += [f"Failed: {row.label}, {row.values}: {row.error}" for row in rows if row.error]
    return Sheet(
        f"{plan}: tuning trials, {splits} split",
        ("method", "values", "seeds", "accuracy %", "state", ""),
        (False, False, True, True, False, False),
        cells,
        tuple(notes),
        tuple(asdict(row) for row in rows),
    )


def _edges(rows: Sequence[TrialRow]) -> list[str]:
    """Which chosen values are the first or last of three or more tried: better ones may lie beyond."""
    notes = []
    for row in (row for row in rows if row.is_chosen):
        for path, value in row.values.items():
            tried = {
                other.values[path] for other in rows if other.label == row.label and _is_number(other.values[path])
            }
            if _is_number(value) and len(tried) > 2 and value in (min(tried), max(tried)):
                end = "smallest" if value == min(tried) else "largest"
                notes.append(f"At the edge: {row.label}, {path}={value} is the {end} value tried.")
    return notes


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def costs_sheet(plan: str, rows: Sequence[CostRow]) -> Sheet:
    """Full costs: sums over runs, the table's own and the trials' apart."""
    cells = tuple(
        (
            row.label,
            "tuning" if row.is_tuning else "runs",
            str(row.runs),
            *(count_text(getattr(row, key)) for key in COSTS),
            flop_text(row.flop),
            "–" if row.wall_seconds is None else f"{row.wall_seconds:,.0f}",
        )
        for row in rows
    )
    return Sheet(
        f"{plan}: full cost",
        ("method", "of", "runs", *(key.removesuffix("_tokens") for key in COSTS), "FLOP", "wall s"),
        (False, False, *[True] * 8),
        cells,
        (
            "Tokens, FLOP and seconds of training, summed over runs, finished or not; without evaluation. auxiliary: "
            "generated for privileged context.",
        ),
        tuple(asdict(row) for row in rows),
    )
