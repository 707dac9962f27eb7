"""The training metrics of one run at every update, and what its controllers did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, parts, pictures
from dashboard.escaping import plain
from dashboard.reading import Snapshot

FIRST = ("loss", "grad_norm", "entropy/student", "completion_tokens_mean", "pass_rate", "reward_mean")
"""What is drawn before anything is picked, where a run recorded it: runs may record hundreds of metrics."""
FIRST_BY_PREFIX = ("divergence/",)
FEWEST_FIRST = 4
"""With fewer of those, the first others fill up."""
CONTROLLED = ("controller/", "weight/", "load/", "kept/", "half_life/")
"""Metrics that show controllers at work: their outputs, the weights and loads of terms, and what takes part."""


def draw(snapshot: Snapshot, run: dict[str, Any]) -> None:
    """Draw the part of the run page that shows its metrics."""
    steps = snapshot.table("run_steps", run_id=run["run_id"])
    if steps.empty:
        st.info("This run has recorded no update.")
        return
    left, right = st.columns([1, 3])
    x = parts.pick_axis(left)
    names = list(dict.fromkeys(steps["name"]))
    shown = choices.pick_many("Metrics", "metrics", names, default=first_metrics(names), container=right)
    st.caption(f"{len(shown)} of {len(names)} metrics; every recorded update is drawn.")
    traces(run, steps, shown, x)
    parts.download("All metrics as CSV", parts.csv(steps), parts.file_stem(run["run_id"], "metrics") + ".csv")


def draw_controllers(snapshot: Snapshot, run: dict[str, Any]) -> None:
    """Draw the part that shows controllers: λ, β, anchor weights, dual prices, and the shares they steer."""
    controllers = (json.loads(run["spec"]).get("method") or {}).get("controllers") or {}
    steps = snapshot.table("run_steps", run_id=run["run_id"])
    names = [name for name in dict.fromkeys(steps["name"]) if name.startswith(CONTROLLED)]
    moved = [name for name in names if steps.loc[steps["name"] == name, "value"].nunique() > 1]
    if not controllers:
        st.info("The method of this run has no controller: its coefficients are constant or scheduled.")
    else:
        st.caption("What steers the method's coefficients, as the specification has it.")
        st.json(controllers, expanded=len(controllers) == 1)
    if not names:
        return
    x = parts.pick_axis(st.columns([1, 3])[0])
    constant = [name for name in names if name not in moved]
    traces(run, steps, moved, x)
    if constant:
        last = steps[steps["name"].isin(constant)].groupby("name")["value"].last()
        said = ", ".join(
            f"{plain(name)} {'–' if pd.isna(value) else format(value, '.4g')}" for name, value in last.items()
        )
        st.caption(f"The same at every update: {said}.")


def first_metrics(names: Sequence[str]) -> list[str]:
    """The metrics to draw before anything is picked."""
    known = [name for name in FIRST if name in names]
    known += [name for name in names if name.startswith(FIRST_BY_PREFIX) and not name.endswith("_normalised")]
    others = [name for name in names if name not in known]
    return known + others[: max(0, FEWEST_FIRST - len(known))]


def traces(run: dict[str, Any], steps: pd.DataFrame, shown: Sequence[str], x: str) -> None:
    """One small chart a metric, two in a row."""
    label = run["method"] if pd.isna(run["label"]) else run["label"]
    colour = charts.looks([label], controls={label} if run["is_control"] else ())[label].colour
    columns = st.columns(2)
    by_name = dict(iter(steps.groupby("name")))
    for index, name in enumerate(shown):
        placed, unplaced = frames.split_unplaced(by_name[name], x)
        with columns[index % 2]:
            st.markdown(f"**{plain(name)}**")
            if placed["value"].notna().sum() == 0:
                st.caption(f"No finite value, or {charts.AXIS_TITLES[x]} were not measured.")
                continue
            chart = charts.trace_chart(placed, x=x, y_title=name, colour=colour)
            pictures.show(
                chart, f"trace {name}", file_name=parts.file_stem(run["run_id"], name), alt=f"{name} along {x}"
            )
            if unplaced:
                st.caption(f"{unplaced} points are left out: their {charts.AXIS_TITLES[x]} were not measured.")
