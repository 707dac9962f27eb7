"""A comparison as a table for the terminal, for a document and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.results.budgets import TOTAL_TOKENS
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
    table = Table(title=Text(title(comparison)), caption=Text("\n".join(footnotes(comparison))), caption_justify="left")
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
    return "\n".join([f"**{title(comparison)}**", "", *lines, "", *notes, ""])


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
        "plan": row.plan or comparison.plan,
        "benchmark": row.benchmark,
        "is_retention": row.is_retention,
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
        "updates": " ".join(f"{seed.seed}:{seed.update}" for seed in row.seeds),
        "budget_by": comparison.budget.by if comparison.budget else None,
        "budget": comparison.budget.value if comparison.budget else None,
        "spent": row.spent,
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
    notes += _selection_notes(comparison)
    flagged = [row.label for row in comparison.rows if row.unscored_rate > UNSCORED_FLAG]
    if flagged:
        notes.append(f"! more than {UNSCORED_FLAG:.0%} of the answers could not be scored: {', '.join(flagged)}.")
    notes += [
        f"Not in the table: {run.label}, seed {run.seed} ({run.benchmark}): {run.reason} [{run.run_id}]."
        for run in comparison.excluded
    ]
    return notes


def _selection_notes(comparison: Comparison) -> list[str]:
    """Which runs and which checkpoints the table is about."""
    notes = []
    if comparison.budget is not None:
        budget = comparison.budget
        why = ", the smallest spend of a row" if budget.is_default else ""
        notes.append(
            f"Budget: {budget.value:,.6g} {budget.by.replace('_', ' ')}{why}. Each run at its last whole evaluation "
            "that spent no more; nothing is interpolated."
        )
        if budget.by == "total_tokens":
            parts = ", ".join(key.removesuffix("_tokens") for key in TOTAL_TOKENS)
            notes.append(f"Total tokens: {parts}; the tokens in the loss are these again and are not added.")
    if any(row.is_retention for row in comparison.rows):
        notes.append("(retention): a benchmark that training must not spoil, asked before and after it.")
    if comparison.filters:
        conditions = " and ".join(comparison.filters)
        notes.append(f"Only runs with {conditions}, and the untrained model: {comparison.n_filtered} left out.")
    if "@" in comparison.metric or "^" in comparison.metric:
        short = [row.label for row in comparison.rows if (row.n_valued_problems or 0) < row.n_problems]
        names = f"; some are missing in: {', '.join(dict.fromkeys(short))}" if short else ""
        notes.append(f"{comparison.metric}: over the problems with that many scored answers{names}.")
    return notes


def title(comparison: Comparison) -> str:
    benchmarks = ", ".join(dict.fromkeys(row.benchmark for row in comparison.rows)) or "nothing yet"
    return f"{comparison.plan}: {metric_text(comparison)} on {benchmarks}, {comparison.split} split"


def metric_text(comparison: Comparison) -> str:
    return comparison.metric.replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cell: Callable[[Row], str]
    always: bool = True
    """Also in the narrow table."""
    is_text: bool = False


def _columns(comparison: Comparison) -> list[_Column]:
    several = len({row.benchmark for row in comparison.rows}) > 1 or any(row.is_retention for row in comparison.rows)
    name = labels(comparison)
    return [
        _Column("method", name, is_text=True),
        *([_Column("benchmark", benchmark_text, is_text=True)] if several else []),
        _Column("seeds", _seeds),
        _Column(f"{metric_text(comparison)} %", score_text),
        _Column("Δ" if comparison.baseline is None else f"Δ {comparison.baseline}", delta_text),
        _Column("p", p_text),
        *_budget_columns(comparison),
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


def labels(comparison: Comparison) -> Callable[[Row], str]:
    """What to call a row: its label, with plan or place on the axes where other rows have the same label."""
    cells = {(row.label, row.plan, row.axes) for row in comparison.rows}
    in_plans = _repeated({(label, plan) for label, plan, _ in cells})
    on_axes = _repeated({(label, axes) for label, _, axes in cells})

    def name(row: Row) -> str:
        text = f"{row.label} {row.axes}" if row.label in on_axes else row.label
        text = f"{text} ({row.plan})" if row.label in in_plans else text
        return f"{text} (control)" if row.is_control else text

    return name


def _repeated(pairs: Collection[tuple[str, str]]) -> set[str]:
    return {label for label, count in Counter(label for label, _ in pairs).items() if count > 1}


def benchmark_text(row: Row) -> str:
    return f"{row.benchmark} (retention)" if row.is_retention else row.benchmark


def _budget_columns(comparison: Comparison) -> list[_Column]:
    if comparison.budget is None:
        return []
    by = comparison.budget.by
    columns = [_Column("at update", _updates)]
    if by == "total_tokens":
        columns.append(_Column("total tokens", lambda row: count_text(row.spent)))
    return columns


def _updates(row: Row) -> str:
    found = sorted({seed.update for seed in row.seeds})
    return str(found[0]) if len(found) == 1 else f"{found[0]}–{found[-1]}"


def score_text(row: Row) -> str:
    if row.interval:
        return f"{100 * row.mean:.1f} [{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]"
    return " · ".join(f"{100 * seed.value:.1f}" for seed in row.seeds)


def delta_text(row: Row) -> str:
    if row.delta is None:
        return "–"
    if row.delta_interval is None:
        return f"{100 * row.delta:+.1f}"
    return f"{100 * row.delta:+.1f} [{100 * row.delta_interval.low:+.1f}, {100 * row.delta_interval.high:+.1f}]"


def p_text(row: Row) -> str:
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
