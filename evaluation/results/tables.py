"""A comparison as a table for the terminal, for a document and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.results.comparison import Comparison, Row
from evaluation.results.records import COST_KEYS
from evaluation.statistics import FEWEST_SEEDS, Interval

if TYPE_CHECKING:
    from rich.table import Table

SIGNIFICANT = 0.05
"""Adjusted p-values below this are marked with a star."""
UNSCORED_FLAG = 0.02
"""A row with a larger share of answers without a score is marked."""


def render(comparison: Comparison, *, wide: bool = False) -> Table:
    """The comparison as a rich table with its rules below it; ``wide`` adds the columns a narrow terminal omits."""
    from rich.table import Table
    from rich.text import Text

    # Text, not markup: a label or an interval may hold square brackets.
    table = Table(
        title=Text(_title(comparison)), caption=Text("\n".join(footnotes(comparison))), caption_justify="left"
    )
    columns = [column for column in _columns(comparison) if wide or column.always]
    for column in columns:
        table.add_column(column.name, justify="left" if column.is_text else "right")
    for row in comparison.rows:
        style = "dim" if row.is_control else "bold" if row.is_baseline else None
        table.add_row(*[Text(column.cell(row)) for column in columns], style=style)
    return table


def to_markdown(comparison: Comparison) -> str:
    """The comparison as a Markdown table with all columns, its rules as a list below it."""
    columns = _columns(comparison)
    rows = [[column.name for column in columns], ["---" if column.is_text else "--:" for column in columns]]
    rows += [[column.cell(row).replace("|", "\\|") for column in columns] for row in comparison.rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {note}" for note in footnotes(comparison)]
    return "\n".join([f"**{_title(comparison)}**", "", *lines, "", *notes, ""])


def to_csv(comparison: Comparison) -> str:
    """Every number of every row, unrounded; an empty field is "not known"."""
    text = io.StringIO()
    records = [_record(comparison, row) for row in comparison.rows]
    writer = csv.DictWriter(text, list(records[0]) if records else ["plan"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _record(comparison: Comparison, row: Row) -> dict[str, object]:
    low, high = _bounds(row.interval)
    delta_low, delta_high = _bounds(row.delta_interval)
    return {
        "plan": comparison.plan,
        "benchmark": row.benchmark,
        "split": comparison.split,
        "metric": comparison.metric,
        "label": row.label,
        "axes": row.axes,
        "method": row.method,
        "is_control": row.is_control,
        "is_baseline": row.is_baseline,
        "n_seeds": row.n_seeds,
        "n_planned": row.n_planned,
        "n_problems": row.n_problems,
        "mean": row.mean,
        "low": low,
        "high": high,
        "standard_error": row.standard_error,
        "seed_values": " ".join(f"{seed.seed}:{seed.value!r}" for seed in row.seeds),
        **{key: row.cost[key] for key in COST_KEYS},
        "baseline": comparison.baseline,
        "delta": row.delta,
        "delta_low": delta_low,
        "delta_high": delta_high,
        "p_value": row.p_value,
        "p_holm": row.p_holm,
        "n_pairs": row.n_pairs,
        "n_paired_problems": row.n_paired_problems,
        "unscored_rate": row.unscored_rate,
        "rule": row.rule,
    }


def footnotes(comparison: Comparison) -> list[str]:
    """What the numbers are and how they were made, and which planned runs are not in them."""
    percent = round(comparison.confidence * 100)
    notes = [
        f"[low, high]: {percent} % interval over seeds and problems ({comparison.resamples:,} resamples); fewer than "
        f"{FEWEST_SEEDS} seeds: the seeds' values, no interval.",
        "No baseline: name one with --baseline."
        if comparison.baseline is None
        else f"Δ: paired difference to {comparison.baseline} on the same problems, in points. p: paired test, adjusted "
        f"(Holm) for the comparisons in this table; * below {SIGNIFICANT}.",
    ]
    unanimous = [row.label for row in comparison.rows if row.is_unanimous and row.interval]
    if unanimous:
        notes.append(
            f"Wilson's interval over problems, for every scored answer is wrong or every one is right: "
            f"{', '.join(dict.fromkeys(unanimous))}."
        )
    problems: dict[str, set[int]] = {}
    for row in comparison.rows:
        problems.setdefault(row.benchmark, set()).add(row.n_problems)
    sizes = [f"{'/'.join(map(str, sorted(counts)))} on {name}" for name, counts in problems.items()]
    notes.append(f"Problems: {', '.join(sizes) or 'none'}. Costs are means over seeds, at the evaluated checkpoint.")
    rules = dict.fromkeys(row.rule for row in comparison.rows if row.rule)
    notes += [f"Test: {rule}." for rule in rules]
    flagged = [row.label for row in comparison.rows if row.unscored_rate > UNSCORED_FLAG]
    if flagged:
        notes.append(f"! more than {UNSCORED_FLAG:.0%} of the answers could not be scored: {', '.join(flagged)}.")
    notes += [
        f"Not in the table: {run.label}, seed {run.seed} ({run.benchmark}): {run.reason} [{run.run_id}]."
        for run in comparison.excluded
    ]
    return notes


def _title(comparison: Comparison) -> str:
    benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in comparison.rows)) or "nothing yet"
    return f"{comparison.plan}: {_metric(comparison)} on {benchmarks}, {comparison.split} split"


def _metric(comparison: Comparison) -> str:
    return comparison.metric.replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cell: Callable[[Row], str]
    always: bool = True
    """Also in the narrow table."""
    is_text: bool = False


def _columns(comparison: Comparison) -> list[_Column]:
    several = len({row.benchmark for row in comparison.rows}) > 1
    cells = {(row.label, row.axes) for row in comparison.rows}
    shared = {label for label, count in Counter(label for label, _ in cells).items() if count > 1}
    return [
        _Column("method", lambda row: _label(row, shared), is_text=True),
        *([_Column("benchmark", lambda row: row.benchmark, is_text=True)] if several else []),
        _Column("seeds", _seeds),
        _Column(f"{_metric(comparison)} %", _score),
        _Column("Δ" if comparison.baseline is None else f"Δ {comparison.baseline}", _delta),
        _Column("p", _p),
        _Column("rollout tokens", lambda row: count_text(row.cost["rollout_tokens"])),
        _Column("reference tokens", lambda row: count_text(row.cost["reference_tokens"]), always=False),
        _Column("trained tokens", lambda row: count_text(row.cost["trained_tokens"])),
        _Column("teacher tokens", lambda row: count_text(row.cost["teacher_tokens"]), always=False),
        _Column("auxiliary tokens", lambda row: count_text(row.cost["auxiliary_tokens"] or 0), always=False),
        _Column("FLOP", lambda row: flop_text(row.cost["flop"]), always=False),
        _Column("wall s", _wall),
        _Column("problems", lambda row: str(row.n_problems), always=False),
        _Column("unscored", lambda row: f"{row.unscored_rate:.1%}", always=False),
    ]


def _seeds(row: Row) -> str:
    return str(row.n_seeds) if row.n_seeds == row.n_planned else f"{row.n_seeds} of {row.n_planned}"


def _wall(row: Row) -> str:
    seconds = row.cost["wall_seconds"]
    return "–" if seconds is None else f"{seconds:,.0f}"


def _label(row: Row, shared: Collection[str]) -> str:
    """The row's label; with its place on the axes where other rows have the same label."""
    name = f"{row.label} {row.axes}" if row.label in shared else row.label
    return f"{name} (control)" if row.is_control else name


def _score(row: Row) -> str:
    if row.interval:
        return f"{100 * row.mean:.1f} [{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]"
    return " · ".join(f"{100 * seed.value:.1f}" for seed in row.seeds)


def _delta(row: Row) -> str:
    if row.delta is None:
        return "–"
    if row.delta_interval is None:
        return f"{100 * row.delta:+.1f}"
    return f"{100 * row.delta:+.1f} [{100 * row.delta_interval.low:+.1f}, {100 * row.delta_interval.high:+.1f}]"


def _p(row: Row) -> str:
    if row.p_holm is None:
        return "–"
    text = "<.001" if row.p_holm < 0.001 else f"{row.p_holm:.3f}"
    return f"{text}*" if row.p_holm < SIGNIFICANT else text


def count_text(value: float | None) -> str:
    """A number of tokens with three or four digits and a unit."""
    if value is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):,.1f}{unit}"
    return f"{value:,.0f}"


def flop_text(value: float | None) -> str:
    """Floating-point operations with three digits."""
    return "–" if value is None else f"{value:.2e}"


def _bounds(interval: Interval | None) -> tuple[float | None, float | None]:
    return (interval.low, interval.high) if interval else (None, None)
