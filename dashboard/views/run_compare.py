"""Two runs of a study beside each other: where their specifications differ, and one curve of both."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, parts, pictures
from dashboard.escaping import plain
from dashboard.reading import Snapshot

SCORE = "score:"
"""Marks the accuracy on a benchmark and split, as against a metric of the updates."""


def draw(snapshot: Snapshot, run: dict[str, Any], other_id: str) -> None:
    """Draw the differences of two runs beside a curve of both."""
    (other,) = frames.records(snapshot.table("run", run_id=other_id))
    table = frames.differences(json.loads(run["spec"]), json.loads(other["spec"]))
    left, right = st.columns(2, gap="medium")
    with left:
        if table.empty:
            st.success("Both runs have the same specification.")
        else:
            st.caption(f"{len(table)} {'place differs' if len(table) == 1 else 'places differ'}.")
            st.dataframe(table, hide_index=True, placeholder="–", key="differences", height="content")
            stem = parts.file_stem(run["run_id"], other_id, "differences")
            parts.download("Differences as CSV", parts.csv(table), f"{stem}.csv")
    with right:
        _curve(snapshot, run, other)


def _curve(snapshot: Snapshot, run: dict[str, Any], other: dict[str, Any]) -> None:
    points = pd.concat([_points(snapshot, run), _points(snapshot, other)], ignore_index=True)
    both = points.groupby("metric", sort=False)["run_id"].nunique()
    offered = [str(metric) for metric, runs in both.items() if runs == 2]
    if not offered:
        st.info("The two runs have no metric and no benchmark in common.")
        return
    one, two = st.columns(2)
    metric = choices.pick("Metric", "curve", offered, show=_title, container=one)
    x = parts.pick_axis(two)
    placed, unplaced = frames.split_unplaced(points[points["metric"] == metric], x)
    chart = charts.pair_chart(
        placed, [run["run_id"], other["run_id"]], x=x, y_title=_title(metric), percent=metric.startswith(SCORE)
    )
    stem = parts.file_stem(run["run_id"], other["run_id"], metric)
    pictures.show(chart, "two runs", file_name=stem, alt=f"{_title(metric)} of both runs along {charts.AXIS_TITLES[x]}")
    said = "Every point of both runs is drawn."
    if unplaced:
        said = f"{unplaced} points are left out: their {charts.AXIS_TITLES[x]} were not measured."
    st.caption(said)


def _points(snapshot: Snapshot, run: dict[str, Any]) -> pd.DataFrame:
    """Scores and metrics of one run: metric, run_id, update, value and the costs."""
    scores = snapshot.table("run_scores", run_id=run["run_id"])
    names = [f"{SCORE}{name}, {split}" for name, split in zip(scores["benchmark"], scores["split"], strict=True)]
    scored = scores.assign(metric=names, value=scores["accuracy"])
    steps = snapshot.table("run_steps", run_id=run["run_id"])
    found = pd.concat([scored, steps.rename(columns={"name": "metric"})], ignore_index=True)
    return found[["metric", "update", "value", *charts.COSTS]].assign(run_id=run["run_id"])


def _title(metric: str) -> str:
    return f"accuracy on {metric.removeprefix(SCORE)}" if metric.startswith(SCORE) else plain(metric)
