"""The training metrics of one run at every update."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, parts, pictures
from dashboard.escaping import plain
from dashboard.reading import Snapshot


def draw(snapshot: Snapshot, run: dict[str, Any]) -> None:
    """Draw the part of the run page that shows its metrics."""
    steps = snapshot.table("run_steps", run_id=run["run_id"])
    if steps.empty:
        st.info("This run has recorded no update.")
        return
    left, right = st.columns([1, 3])
    x = choices.pick("Along", "x", list(charts.AXIS_TITLES), show=charts.AXIS_TITLES.__getitem__, container=left)
    names = list(dict.fromkeys(steps["name"]))
    shown = choices.pick_many("Metrics", "metrics", names, container=right)
    label = run["method"] if pd.isna(run["label"]) else run["label"]
    colour = charts.looks([label], controls={label} if run["is_control"] else ())[label].colour
    columns = st.columns(2)
    for index, name in enumerate(shown):
        points = steps[steps["name"] == name]
        placed, unplaced = frames.split_unplaced(points, x)
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
    parts.download("Metrics as CSV", parts.csv(steps), parts.file_stem(run["run_id"], "metrics") + ".csv")
