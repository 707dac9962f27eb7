"""Ablations: what each value of a plan's axes changes, as a matrix of paired differences to one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import choices, frames, navigation, parts, pictures
from dashboard.escaping import plain
from dashboard.matrix import BENCHMARK, CELL, METHOD, Factor, Grid, factors, is_dense, matrix
from dashboard.matrix_chart import SELECTION, matrix_chart
from dashboard.reading import Snapshot
from evaluation.results.compare import BASE
from evaluation.results.comparison import Comparison, Row
from evaluation.results.plans import CompareError
from evaluation.results.tables import SIGNIFICANT, footnotes

NO_BASELINE = ""
"""In the address: no cell has an empty name."""
CHART = "ablation matrix"
NARROW = 3
"""With no more columns than this, what is behind a cell stands beside the matrix."""
INKS = {"light": "#31333F", "dark": "#FAFAFA"}
"""The text colours of the two themes, for text on coloured cells."""


@dataclass(frozen=True, slots=True)
class View:
    """What was picked."""

    plan: str
    split: str
    metric: str
    grid: Grid
    cells: pd.DataFrame
    names: dict[str, tuple[str, str]]
    """Name of a cell -> its label and axes."""
    baseline: str | None


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Ablations")
    first = st.columns([2, 1, 2, 2])
    plan = parts.pick_plan(snapshot, first[0])
    if plan is None:
        return
    evaluated = snapshot.table("evaluated", plan=plan)
    if evaluated.empty:
        st.info(f"No run of “{plain(plan)}” has finished an evaluation yet. This page fills as evaluations end.")
        return
    split = parts.pick_split(evaluated, first[1])
    benchmarks = tuple(dict.fromkeys(evaluated.loc[evaluated["split"] == split, BENCHMARK]))
    cells = snapshot.table("plan_cells", plan=plan)
    names = {name: cell for cell, name in frames.cell_names(zip(cells["label"], cells["axes"], strict=True)).items()}
    baseline = _pick_baseline(cells, list(names), first[2])
    metric = parts.pick_metric(parts.most_samples(evaluated, split), first[3])
    grid = _pick_grid(cells, benchmarks)
    view = View(plan, split, metric, grid, cells, names, baseline)
    try:
        comparison = _compare(snapshot, view)
        places = matrix(comparison, cells, grid)
    except (CompareError, ValueError) as error:
        st.info(plain(error))
        return
    _draw(view, comparison, places)


def _compare(snapshot: Snapshot, view: View) -> Comparison:
    label, axes = view.names[view.baseline] if view.baseline else (None, None)
    benchmark = view.grid.fixed.get(BENCHMARK)
    return snapshot.comparison(view.plan, benchmark, view.split, label, view.metric, baseline_axes=axes)


def _pick_baseline(cells: pd.DataFrame, names: list[str], container: Any) -> str | None:
    """A cell of the plan; None for no differences, which is offered where the plan has no untrained model."""
    named = frames.named(cells)
    bases = list(named.loc[named["method"] == BASE, "name"])
    offered = names if bases else [NO_BASELINE, *names]
    default = bases[0] if bases else NO_BASELINE
    picked = choices.pick(
        "Baseline",
        "baseline",
        offered,
        default=default,
        show=lambda name: name or "none",
        container=container,
        help="Differences are paired with this cell by seed and problem.",
    )
    return picked or None


def _pick_grid(cells: pd.DataFrame, benchmarks: tuple[str, ...]) -> Grid:
    """Rows, columns, and the value of everything else that the plan's cells differ in."""
    known = {factor.name: factor for factor in [*factors(cells), Factor(BENCHMARK, BENCHMARK, benchmarks)]}
    axes = [name for name in known if name not in (CELL, METHOD, BENCHMARK)]
    dense = len(axes) < 2 or is_dense(cells, known[axes[0]], known[axes[1]])
    first_row = axes[0] if axes and dense else CELL
    titles = {name: "cells" if name == CELL else factor.title for name, factor in known.items()}
    bar = st.columns(4)
    offered = [name for name in known if name != BENCHMARK]
    row = choices.pick("Rows", "rows", offered, default=first_row, show=titles.__getitem__, container=bar[0])
    across = [BENCHMARK] if row == CELL else [name for name in known if name not in (CELL, row)]
    preferred = next((name for name in across if name in axes), METHOD if METHOD in across else BENCHMARK)
    column = choices.pick("Columns", "columns", across, default=preferred, show=titles.__getitem__, container=bar[1])
    rest = [] if row == CELL else [name for name in known if name not in (CELL, row, column)]
    fixed = {}
    for index, name in enumerate(rest):
        values = known[name].values
        key = BENCHMARK if name == BENCHMARK else f"at {name}"
        fixed[name] = choices.pick(titles[name].capitalize(), key, values, container=bar[2 + index % 2])
    return Grid(known[row], known[column], fixed)


def _draw(view: View, comparison: Comparison, places: pd.DataFrame) -> None:
    stem = parts.file_stem("ablations", view.plan, view.grid.rows.title, view.grid.columns.title, view.metric)
    keys = {(p["row"], p["column"]): p["name"] for p in frames.records(places) if p["name"]}

    def read_selected() -> None:
        picked = st.session_state[CHART]["selection"].get(SELECTION) or []
        if picked and (place := (picked[0]["row"], picked[0]["column"])) in keys:
            choices.set_choice("place", _place_name(*place))

    chart = matrix_chart(
        places,
        row_title=view.grid.rows.title,
        column_title=view.grid.columns.title,
        ink=INKS.get(st.context.theme.type or "light", INKS["light"]),
    )
    alt = f"{parts.metric_title(view.metric)} of {view.plan}: differences to {view.baseline}; the numbers are below."
    narrow = len(view.grid.columns.values) <= NARROW
    left, right = st.columns([3, 2], gap="medium") if narrow else (st.container(), st.container())
    with left:
        pictures.show(chart, CHART, file_name=stem, alt=alt, on_select=read_selected, width="content")
        st.caption(_caption(view, comparison, places))
        _numbers(places, stem)
    if keys:
        with right:
            _place(view, comparison, places, keys)
    with st.expander("How these numbers are made"):
        notes = footnotes(replace(comparison, excluded=()))
        st.markdown("\n".join(f"- {plain(note)}" for note in notes))


def _place_name(row: str, column: str) -> str:
    return f"{row} × {column}"


def _caption(view: View, comparison: Comparison, places: pd.DataFrame) -> str:
    against = "No baseline: scores in percent."
    if view.baseline:
        score = "; ".join(
            f"{row.mean:.1%} on {row.benchmark}, {row.n_seeds} seed{'' if row.n_seeds == 1 else 's'}"
            for row in comparison.rows
            if row.is_baseline
        )
        against = (
            f"Difference to {plain(view.baseline)} ({plain(score) or 'no result'}) in points, on the same problems and "
            f"seeds, with its {comparison.confidence:.0%} interval from three seeds on. Blue: above it, orange: below. "
            f"\\* adjusted p (Holm, all tests of this matrix) below {SIGNIFICANT}."
        )
    fixed = ", ".join(f"{name.rpartition('.')[2]} = {value}" for name, value in view.grid.fixed.items())
    text = f"{against} Third line: seeds · problems."
    if fixed:
        text += f" Here {plain(fixed)}."
    missing = places[(places["kind"] == "missing") & (places["name"] != "")]
    gaps = ((places["kind"] == "missing") & (places["name"] == "")).sum()
    if len(missing):
        listed = "; ".join(f"{p['name']} on {p['benchmark']}: {p['note']}" for p in frames.records(missing))
        text += f" Dashed, without a result: {plain(listed)}."
    if gaps:
        text += f" Dashed with a dot, no cell of the plan: {gaps}."
    return text


def _numbers(places: pd.DataFrame, stem: str) -> None:
    shown = places[places["name"] != ""].drop(columns=["text", "detail", "n"])
    flat = shown.assign(run_ids=[" ".join(runs) for runs in shown["run_ids"]])
    with st.expander("Numbers"):
        st.dataframe(flat, hide_index=True, placeholder="–", key="matrix numbers")
        parts.download("Matrix as CSV", parts.csv(flat), f"{stem}.csv")


def _place(view: View, comparison: Comparison, places: pd.DataFrame, keys: Mapping[tuple[str, str], str]) -> None:
    """The place that was clicked or picked: its numbers and the runs behind it."""
    st.subheader("Behind a cell")
    by_name = {_place_name(p["row"], p["column"]): p for p in frames.records(places)}
    offered = [_place_name(*key) for key in keys]
    first = next((name for name in offered if by_name[name]["kind"] == "delta"), offered[0])
    place = by_name[choices.pick("Cell", "place", offered, default=first, help="Or click a cell of the matrix.")]
    names = {cell: name for name, cell in view.names.items()}
    rows = {(names[row.label, row.axes], row.benchmark): row for row in comparison.rows}
    row = rows.get((place["name"], place["benchmark"]))
    st.markdown(f"**{plain(place['name'])}** on {plain(place['benchmark'])}: {plain(place['note'])}.")
    if row is None:
        for run in place["run_ids"]:
            navigation.link("run", f"{run}", run=run)
        return
    _figures(row)
    for score in row.seeds:
        navigation.link(
            "run",
            f"seed {score.seed}: {score.value:.1%} at update {score.update}: its problems and answers",
            run=score.run_id,
            show="answers",
            benchmark=row.benchmark,
            split=view.split,
            update=str(score.update),
        )


def _figures(row: Row) -> None:
    interval = frames.interval_text(row.interval)
    figures = {"Score": f"{row.mean:.1%}", "Interval": interval}
    if row.delta is not None:
        figures |= {
            "Δ points": f"{100 * row.delta:+.1f}",
            "Δ interval": frames.interval_text(row.delta_interval, signed=True),
            "p (Holm)": "–" if row.p_holm is None else f"{row.p_holm:.4f}",
        }
    with st.container(horizontal=True):
        for label, value in figures.items():
            st.metric(label, value, width="content")
    if row.rule:
        st.caption(f"{row.rule[0].upper()}{row.rule[1:]}.")
