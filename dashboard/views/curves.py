"""Curves: scores and training metrics along updates, tokens or seconds, with the band over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, parts, pictures
from dashboard.charts import Look
from dashboard.escaping import plain
from dashboard.reading import Snapshot
from evaluation.results.plans import METRICS, CompareError
from evaluation.statistics import FEWEST_SEEDS

STEP = "step:"
"""Marks a metric of the updates, as against one of the evaluations."""

NARROW_LEGEND, WIDE_LEGEND = 2, 4
MOST_BANDS = 8
"""With more methods their bands cover each other: they are drawn when asked for."""


@dataclass(frozen=True, slots=True)
class View:
    """What was picked."""

    snapshot: Snapshot
    plan: str
    evaluation: tuple[str, str] | None
    """Benchmark and split."""
    x: str
    methods: list[str]
    styles: Mapping[str, Look]
    dots: bool
    bands: bool
    narrow: bool
    """Two charts side by side."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one chart shows: the means, the runs behind them, and the rule of its band."""

    means: pd.DataFrame
    seeds: pd.DataFrame
    percent: bool
    rule: str


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Curves")
    first = st.columns([2, 2, 1, 2, 1], vertical_alignment="bottom")
    plan = parts.pick_plan(snapshot, first[0])
    if plan is None:
        return
    evaluation = parts.pick_evaluation(snapshot, plan, (first[1], first[2]))
    steps = [STEP + name for name in snapshot.table("step_names", plan=plan)["name"]]
    offered = [*(METRICS if evaluation else ()), *steps]
    if not offered:
        return
    x = parts.pick_axis(first[3])
    dots = choices.switch("Seeds", "seeds", default=True, help="Draw every seed too.", container=first[4])
    second = st.columns([4, 5, 1], vertical_alignment="bottom")
    metrics = choices.pick_many("Show", "y", offered, default=offered[:1], show=_title, container=second[0])
    styles = parts.plan_looks(snapshot, plan)
    methods = choices.pick_many("Methods", "methods", list(styles), container=second[1])
    if not metrics or not methods:
        st.info("Pick something to show and at least one method.")
        return
    bands = choices.switch(
        "Bands", "bands", default=len(methods) <= MOST_BANDS, help="Draw the intervals.", container=second[2]
    )
    view = View(snapshot, plan, evaluation, x, methods, styles, dots, bands, narrow=len(metrics) > 1)
    columns = st.columns(2) if view.narrow else [st.container()]
    for index, metric in enumerate(metrics):
        with columns[index % len(columns)]:
            _chart(view, metric)


def _title(metric: str) -> str:
    return f"training: {metric.removeprefix(STEP)}" if metric.startswith(STEP) else parts.metric_title(metric)


def _chart(view: View, metric: str) -> None:
    try:
        drawn = _read(view, metric)
    except CompareError as error:
        st.info(str(error))
        return
    is_step, evaluation, x = metric.startswith(STEP), view.evaluation, view.x
    on = "" if is_step or evaluation is None else f" on {', '.join(evaluation)}"
    st.subheader(plain(_title(metric) + on))
    picked = frames.mark_partial(drawn.means[drawn.means["name"].isin(view.methods)])
    means, unplaced = frames.split_unplaced(picked, x)
    seeds = drawn.seeds[drawn.seeds["name"].isin(view.methods) & ~drawn.seeds["is_base"]]
    seeds, _ = frames.split_unplaced(seeds, x)
    if means["mean"].notna().sum() == 0:
        st.info(f"None of the picked methods has a point here: {charts.AXIS_TITLES[x]} may not have been measured.")
        return
    stem = parts.file_stem(view.plan, metric.removeprefix(STEP), *(evaluation or ()), x)
    chart = charts.curve_chart(
        means if view.bands else means.assign(low=np.nan, high=np.nan),
        seeds if view.dots else None,
        view.styles,
        x=x,
        y_title=_title(metric),
        percent=drawn.percent,
        seeds_as_lines=is_step,
        legend_columns=NARROW_LEGEND if view.narrow else WIDE_LEGEND,
    )
    alt = f"{_title(metric)} along {charts.AXIS_TITLES[x]}; the numbers are below."
    pictures.show(chart, f"curve {metric}", file_name=stem, alt=alt)
    st.caption(_caption(means, seeds, drawn.rule, unplaced, x))
    with st.expander("Numbers"):
        st.dataframe(means, hide_index=True, placeholder="–", key=f"numbers {metric}", column_config={"is_base": None})
        left, right = st.columns(2)
        parts.download("Means as CSV", parts.csv(means), f"{stem}.csv", container=left)
        parts.download("Seeds as CSV", parts.csv(seeds), f"{stem}-seeds.csv", container=right)


def _read(view: View, metric: str) -> Drawn:
    if metric.startswith(STEP):
        points = frames.named(view.snapshot.table("step_points", plan=view.plan, metric=metric.removeprefix(STEP)))
        rule = "mean over seeds"
        if view.bands:
            rule += f"; band: Student's 95 % interval over seeds, from {FEWEST_SEEDS} seeds on"
        return Drawn(frames.step_curves(points), points, percent=False, rule=rule)
    assert view.evaluation is not None  # metrics of evaluations are offered only when there are some
    means, seeds = view.snapshot.curves(view.plan, *view.evaluation, metric)
    rule = "mean over seeds of the mean over problems"
    if view.bands:
        rule += (
            "; band: 95 % interval over seeds and problems (Wilson's over problems where all scored answers are wrong "
            f"or all are right), from {FEWEST_SEEDS} seeds on"
        )
    rule += "; update 0 is the untrained model"
    return Drawn(frames.named(means), frames.named(seeds).assign(value=seeds[metric]), percent=True, rule=rule)


def _caption(means: pd.DataFrame, seeds: pd.DataFrame, rule: str, unplaced: int, x: str) -> str:
    trained = means[~means["is_base"]]
    counts = trained.groupby("name", sort=False)["n_seeds"].agg(["min", "max"])
    ns = ", ".join(
        f"{plain(name)} n = {low}" if low == high else f"{plain(name)} n = {low} to {high}"
        for name, low, high in counts.itertuples(name=None)
    )
    text = (
        f"{rule[0].upper()}{rule[1:]}. Seeds: {ns}. All {len(trained)} means and {len(seeds)} runs' points are drawn."
    )
    partial = trained["is_partial"].sum()
    if partial:
        text += f" {partial} hollow points are means of fewer seeds than the rest of their curve."
    gaps = trained["mean"].isna().sum()
    if gaps:
        text += f" {gaps} points have no finite value and leave a gap."
    if unplaced:
        text += f" {unplaced} points are left out: their {charts.AXIS_TITLES[x]} were not measured."
    return text
