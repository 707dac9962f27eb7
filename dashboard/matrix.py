"""The ablation matrix: one cell of it for every pair of a row's and a column's value. Pure: no page, no store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dashboard.frames import cell_names, interval_text, records
from evaluation.results.comparison import Comparison, ExcludedRun, Row
from evaluation.results.tables import SIGNIFICANT

CELL = "cell"
"""The factor whose values are the plan's cells, one by one."""
METHOD = "method"
"""The factor whose values are the labels that cells on the plan's axes share."""
BENCHMARK = "benchmark"
NOT_SET = "–"
"""The value of an axis in a cell that is not on it, such as the untrained model."""

Cell = tuple[str, str]
"""Label and axes (JSON text), as the plan has them."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What rows or columns of a matrix may be: the cells, their labels, the benchmarks, or one axis of the plan."""

    name: str
    title: str
    values: tuple[str, ...]
    """In the order of the matrix."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Which factor is drawn along which side, and the one value taken of every other."""

    rows: Factor
    columns: Factor
    fixed: Mapping[str, str]


def factors(cells: pd.DataFrame) -> list[Factor]:
    """What the plan's cells differ in: its axes, the labels that several of them share, and each by itself.

    ``cells`` are the rows of ``queries/plan_cells.sql``.
    """
    trained = cells[cells["method"] != "base"]
    pairs = list(dict.fromkeys(zip(trained["label"], trained["axes"], strict=True)))
    on_axes = [json.loads(axes) for _, axes in pairs if axes]
    found = []
    for path in dict.fromkeys(path for axes in on_axes for path in axes):
        values = {value_text(axes[path]) for axes in on_axes if path in axes}
        found.append(Factor(path, path.rpartition(".")[2], tuple(sorted(values, key=_order))))
    stems = tuple(dict.fromkeys(stem(cell) for cell in pairs))
    if found and len(stems) > 1:
        found.append(Factor(METHOD, METHOD, stems))
    names = cell_names(zip(cells["label"], cells["axes"], strict=True))
    return [*found, Factor(CELL, CELL, tuple(names.values()))]


def stem(cell: Cell) -> str:
    """A cell's label without the values of its axes, which plans append to it."""
    label, axes = cell[0].removesuffix(" (tuning)"), json.loads(cell[1]) if cell[1] else {}
    endings = [f", {path.rpartition('.')[2]}={value}" for path, value in axes.items()]
    while shorter := next((label.removesuffix(end) for end in endings if label.endswith(end)), None):
        label = shorter
    return label


def value_text(value: Any) -> str:
    """A value of an axis, as matrices show it."""
    if value is None:
        return NOT_SET
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by size, before texts."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def place(cell: Cell, factor: Factor, benchmark: str, names: Mapping[Cell, str]) -> str:
    """The value that one cell on one benchmark has of ``factor``; ``names`` are those of ``frames.cell_names``."""
    if factor.name == BENCHMARK:
        return benchmark
    if factor.name == CELL:
        return names[cell]
    if factor.name == METHOD:
        return stem(cell)
    return value_text((json.loads(cell[1]) if cell[1] else {}).get(factor.name))


def matrix(comparison: Comparison, cells: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """One row a place of the grid, empty places included.

    Columns: row, column, name and benchmark (of the cell that is there), kind ("delta", "baseline", "score" for a cell
    without a difference, "missing"), delta, low, high, mean, mean_interval (text), p_holm, significant, n_seeds,
    n_planned, n_problems, n_paired_problems, text, detail and n (what the place says), note (why, in words), run_ids.
    Scores and differences are in percent and points. A place that several cells share raises ValueError.
    """
    names = cell_names(zip(cells["label"], cells["axes"], strict=True))
    planned = [
        (str(label), str(axes)) for label, axes in dict.fromkeys(zip(cells["label"], cells["axes"], strict=True))
    ]
    counted = {(row.label, row.axes, row.benchmark): row for row in comparison.rows}
    lost = _lost(comparison.excluded, cells)
    benchmarks = dict.fromkeys([row.benchmark for row in comparison.rows] + [e.benchmark for e in comparison.excluded])
    fixed = [Factor(name, name, (value,)) for name, value in grid.fixed.items() if name != BENCHMARK]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in planned:
        if any(place(cell, factor, "", names) not in factor.values for factor in fixed):
            continue
        for benchmark in benchmarks:
            if grid.fixed.get(BENCHMARK, benchmark) != benchmark:
                continue
            at = place(cell, grid.rows, benchmark, names), place(cell, grid.columns, benchmark, names)
            if at in found:
                raise ValueError(f"{names[cell]!r} and {found[at]['name']!r} share a place: fix another axis")
            row = counted.get((*cell, benchmark))
            entry = {"name": names[cell], "benchmark": benchmark}
            found[at] = entry | (_missing(lost.get((*cell, benchmark), [])) if row is None else _counted(row))
    rows = [
        {"row": row, "column": column, **(found.get((row, column)) or {**_empty(), "name": "", "benchmark": ""})}
        for row in grid.rows.values
        for column in grid.columns.values
    ]
    return pd.DataFrame(rows)


def is_dense(cells: pd.DataFrame, rows: Factor, columns: Factor) -> bool:
    """Whether at least half of the places of two axes have a cell: random searches fill few."""
    pairs = dict.fromkeys(zip(cells["label"], cells["axes"], strict=True))
    places = {(place(cell, rows, "", {}), place(cell, columns, "", {})) for cell in pairs}
    filled = sum(1 for row, column in places if row in rows.values and column in columns.values)
    return 2 * filled >= len(rows.values) * len(columns.values)


def _counted(row: Row) -> dict[str, Any]:
    seeds = f"{row.n_seeds} of {row.n_planned} seed{'' if row.n_planned == 1 else 's'}"
    kind = "baseline" if row.is_baseline else "score" if row.delta is None else "delta"
    significant = row.p_holm is not None and row.p_holm < SIGNIFICANT
    if kind == "delta":
        assert row.delta is not None
        text = f"{100 * row.delta:+.1f}{'*' if significant else ''}"
        detail = "" if row.delta_interval is None else interval_text(row.delta_interval, signed=True)
        note = f"Δ of {row.n_pairs} pairs of seeds on {row.n_paired_problems} problems"
    else:
        text = f"{100 * row.mean:.1f} %"
        detail = "baseline" if kind == "baseline" else "no pair"
        note = "the baseline" if kind == "baseline" else "no run of the baseline to pair with: the score is shown"
    return {
        "kind": kind,
        "delta": None if row.delta is None else 100 * row.delta,
        "low": None if row.delta_interval is None else 100 * row.delta_interval.low,
        "high": None if row.delta_interval is None else 100 * row.delta_interval.high,
        "mean": 100 * row.mean,
        "mean_interval": interval_text(row.interval),
        "p_holm": row.p_holm,
        "significant": significant,
        "n_seeds": row.n_seeds,
        "n_planned": row.n_planned,
        "n_problems": row.n_problems,
        "n_paired_problems": row.n_paired_problems,
        "text": text,
        "detail": detail,
        "n": f"{row.n_seeds} seed{'' if row.n_seeds == 1 else 's'} · {row.n_problems}",
        "note": f"{note}; {seeds}",
        "run_ids": tuple(seed.run_id for seed in row.seeds),
    }


def _empty() -> dict[str, Any]:
    empty = dict.fromkeys(("delta", "low", "high", "mean", "p_holm"), None)
    counts = dict.fromkeys(("n_seeds", "n_planned", "n_problems", "n_paired_problems"), 0)
    said = {"text": "·", "detail": "", "n": "", "note": "the plan has no such cell"}
    return {
        "kind": "missing",
        **empty,
        "mean_interval": NOT_SET,
        "significant": False,
        **counts,
        **said,
        "run_ids": (),
    }


def _missing(lost: Sequence[ExcludedRun]) -> dict[str, Any]:
    """A planned cell without a result."""
    reasons = pd.Series([run.reason for run in lost], dtype="str").value_counts()
    short = {run.status for run in lost}
    said = short.pop() if len(short) == 1 else "missing"
    return _empty() | {
        "text": "no result" if said == "done" else "not started" if said == "unknown" else said,
        "note": ", ".join(f"{n} × {reason}" for reason, n in reasons.items()) or "no evaluation on this benchmark",
        "n": f"0 of {len(lost)} seeds" if lost else "",
        "n_planned": len(lost),
        "run_ids": tuple(run.run_id for run in lost),
    }


def _lost(excluded: Sequence[ExcludedRun], cells: pd.DataFrame) -> dict[tuple[str, str, str], list[ExcludedRun]]:
    """(label, axes, benchmark) -> the planned runs that are in no row. Runs that cells share are lost in each."""
    where: dict[str, list[Cell]] = {}
    for cell in records(cells):
        where.setdefault(cell["run_id"], []).append((cell["label"], cell["axes"]))
    lost: dict[tuple[str, str, str], list[ExcludedRun]] = {}
    for run in excluded:
        for cell in where.get(run.run_id, []):
            if cell[0] == run.label:
                lost.setdefault((*cell, run.benchmark), []).append(run)
    return lost
