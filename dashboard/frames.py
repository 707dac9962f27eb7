"""From results to the tables that pages and charts show. Pure: no page, no store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from evaluation.results.comparison import Comparison, Row
from evaluation.results.curves import COST_AXES
from evaluation.results.query import QueryResult
from evaluation.statistics import FEWEST_SEEDS, Interval, t_interval


def cell_names(cells: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(label, axes as JSON text) -> what the cell is called: its label, with axis values where labels repeat."""
    distinct = list(dict.fromkeys(cells))
    counts = pd.Series([label for label, _ in distinct]).value_counts()
    names = {}
    for label, axes in distinct:
        values = json.loads(axes) if axes else {}
        suffix = ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in values.items())
        names[label, axes] = f"{label} ({suffix})" if suffix and counts[label] > 1 else label
    return names


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` (with columns label, axes, method) with ``name`` and ``is_base`` added."""
    names = cell_names(zip(frame["label"], frame["axes"], strict=True))
    added = frame.assign(
        name=[names[cell] for cell in zip(frame["label"], frame["axes"], strict=True)],
        is_base=frame["method"] == "base",
    )
    return added


# --- leaderboard ----------------------------------------------------------------------------------------------------


def leaderboard(comparison: Comparison) -> pd.DataFrame:
    """One row a cell and benchmark, as the leaderboard lists it; scores and differences in percent and points."""
    names = cell_names((row.label, row.axes) for row in comparison.rows)
    rows = [
        {
            "method": names[row.label, row.axes],
            "role": "baseline" if row.is_baseline else "control" if row.is_control else "",
            "benchmark": row.benchmark,
            "score": 100 * row.mean,
            "interval": interval_text(row.interval),
            "seeds": f"{row.n_seeds} of {row.n_planned}",
            "delta": None if row.delta is None else 100 * row.delta,
            "delta_interval": interval_text(row.delta_interval, signed=True),
            "p_holm": row.p_holm,
            "rollout_tokens": row.cost["rollout_tokens"],
            "trained_tokens": row.cost["trained_tokens"],
            "teacher_tokens": row.cost["teacher_tokens"],
            "wall_seconds": row.cost["wall_seconds"],
            "problems": row.n_problems,
            "unscored": 100 * row.unscored_rate,
        }
        for row in comparison.rows
    ]
    numbers = ["score", "delta", "p_holm", "rollout_tokens", "trained_tokens", "teacher_tokens", "wall_seconds"]
    columns = list(rows[0]) if rows else ["method", "role", "benchmark", *numbers]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))


def interval_text(interval: Interval | None, *, signed: bool = False) -> str:
    """An interval of shares in percent; "–" for none."""
    if interval is None:
        return "–"
    low, high = 100 * interval.low, 100 * interval.high
    return f"[{low:+.1f}, {high:+.1f}]" if signed else f"[{low:.1f}, {high:.1f}]"


def score_rows(rows: Sequence[Row]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of one benchmark and their seeds, as ``charts.score_chart`` takes them."""
    names = cell_names((row.label, row.axes) for row in rows)
    means = [
        {
            "name": names[row.label, row.axes],
            "mean": row.mean,
            "low": row.interval.low if row.interval else np.nan,
            "high": row.interval.high if row.interval else np.nan,
            "n_seeds": row.n_seeds,
            "n_planned": row.n_planned,
            "n_problems": row.n_problems,
            "is_baseline": row.is_baseline,
        }
        for row in rows
    ]
    seeds = [
        {"name": names[row.label, row.axes], "seed": s.seed, "value": s.value, "run_id": s.run_id, "update": s.update}
        for row in rows
        for s in row.seeds
    ]
    return pd.DataFrame(means), pd.DataFrame(seeds, columns=["name", "seed", "value", "run_id", "update"])


# --- curves of step metrics -----------------------------------------------------------------------------------------


def step_curves(points: pd.DataFrame) -> pd.DataFrame:
    """One row a cell and update of one step metric: the mean over its seeds and Student's interval over them.

    ``points`` holds one row a run and update (name, is_base, seed, run_id, update, value and COST_AXES). Updates at
    which no seed has a finite value stay, with an empty mean. No interval below three seeds, and nothing is left out.
    """
    groups = points.groupby(["name", "update"], sort=False)
    costs = {cost: (cost, "mean") for cost in COST_AXES}
    means = groups.agg(
        is_base=("is_base", "first"),
        mean=("value", "mean"),
        spread=("value", "std"),
        n_seeds=("value", "count"),
        **costs,
    ).reset_index()
    widths = {n: _half_width(n) for n in set(means["n_seeds"])}
    half = means["n_seeds"].map(widths) * means["spread"]
    planned = means["name"].map(points.groupby("name")["run_id"].nunique())
    means = means.assign(low=means["mean"] - half, high=means["mean"] + half, n_planned=planned)
    return means[["name", "is_base", "update", "mean", "low", "high", "n_seeds", "n_planned", *COST_AXES]]


def _half_width(n: int) -> float:
    """Half of Student's interval over ``n`` values, in their standard deviations; NaN below three."""
    interval = t_interval(np.arange(n, dtype=float)) if n >= FEWEST_SEEDS else None
    return np.nan if interval is None else (interval.high - interval.low) / 2 / np.arange(n).std(ddof=1)


def mark_partial(means: pd.DataFrame) -> pd.DataFrame:
    """``means`` with ``is_partial``: whether fewer seeds are in a point than in the fullest point of its curve.

    Runs end at different updates (or are still running), so the last means are often of the longest runs alone.
    """
    fullest = means.groupby("name")["n_seeds"].transform("max")
    return means.assign(is_partial=means["n_seeds"] < fullest)


def split_unplaced(frame: pd.DataFrame, x: str) -> tuple[pd.DataFrame, int]:
    """The points that have a place on the axis ``x``, and how many have none because that cost was not measured."""
    placed = frame[frame[x].notna()]
    return placed, len(frame) - len(placed)


# --- cells of tables ------------------------------------------------------------------------------------------------


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dicts."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def listed(value: Any) -> list[str]:
    """A list column's cell; empty for the database's null."""
    return [str(item) for item in value] if isinstance(value, list | tuple | np.ndarray) else []


def duration(seconds: float) -> str:
    """A span for people: "42 s", "7 min", "3.5 h", "2.1 d"."""
    for size, unit, digits in ((86_400, "d", 1), (3_600, "h", 1), (60, "min", 0)):
        if seconds >= size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


# --- runs -----------------------------------------------------------------------------------------------------------


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested dicts and lists as dotted path -> plain value; empty ones stay as they are."""
    if isinstance(value, Mapping) and value:
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and value:
        items = enumerate(value)
    else:
        return {path: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat |= flatten(item, f"{path}.{key}" if path else str(key))
    return flat


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> pd.DataFrame:
    """The paths at which two specifications differ: path, this, other ("absent" where one has no such path)."""
    a, b = flatten(first), flatten(second)
    rows = [
        {"path": path, "this": _value_text(a, path), "other": _value_text(b, path)}
        for path in dict.fromkeys([*a, *b])
        if path not in a or path not in b or a[path] != b[path]
    ]
    return pd.DataFrame(rows, columns=["path", "this", "other"])


def _value_text(flat: Mapping[str, Any], path: str) -> str:
    return json.dumps(flat[path], ensure_ascii=False) if path in flat else "absent"


def with_texts(answers: pd.DataFrame, texts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Answers with the ``completion`` and ``feedback`` that their sample file and row name; None where it is gone."""
    found = {name: np.full(len(answers), None, dtype=object) for name in ("completion", "feedback")}
    rows = answers["sample_row"].to_numpy()
    for file, table in texts.items():
        here = np.flatnonzero((answers["sample_file"] == file).to_numpy() & (rows >= 0) & (rows < len(table)))
        for name in set(found) & set(table.columns):
            values = table[name].to_numpy(dtype=object, copy=True)
            values[table[name].isna().to_numpy()] = None
            found[name][here] = values[rows[here]]
    return answers.assign(**{name: pd.Series(v, index=answers.index, dtype=object) for name, v in found.items()})


def shortened(answers: pd.DataFrame, columns: Sequence[str], longest: int) -> pd.DataFrame:
    """``answers`` with the texts in ``columns`` cut after ``longest`` characters, for a list; "…" marks a cut."""

    def cut(text: Any) -> Any:
        return f"{text[:longest]}…" if isinstance(text, str) and len(text) > longest else text

    return answers.assign(**{column: answers[column].map(cut) for column in columns})


# --- queries --------------------------------------------------------------------------------------------------------

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


def result_table(result: QueryResult) -> pd.DataFrame:
    """A query's rows with a fitting type a column: what is neither number, time, boolean nor text becomes JSON text."""
    columns = {}
    for index, kind in enumerate(result.types):
        values = [row[index] for row in result.rows]
        columns[index] = _typed(values, kind)
    table = pd.DataFrame(columns)
    table.columns = _unique(result.columns)
    return table


def _typed(values: list[Any], kind: str) -> pd.Series:
    if kind in _INTEGERS:
        return pd.Series(values, dtype="Int64")
    if kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
        return pd.Series(values, dtype="Float64")
    if kind == "BOOLEAN":
        return pd.Series(values, dtype="boolean")
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return pd.to_datetime(pd.Series(values, dtype="object"), format="ISO8601", errors="coerce")
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    return pd.Series(texts, dtype="string")


def _unique(names: Sequence[str]) -> list[str]:
    """Column names with repeats numbered, since a query may give one name twice and a file may not."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
