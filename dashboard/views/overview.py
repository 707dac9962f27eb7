"""Overview: plans and runs with their states, what is running now, and what needs a look."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import streamlit as st

from dashboard import choices, frames, health, navigation, parts
from evaluation.results.tables import UNSCORED_FLAG

ALL = "all"
RUN_COLUMNS = (
    "open",
    "status",
    "plans",
    "label",
    "seed",
    "progress",
    "updates",
    "rollout_tokens",
    "trained_tokens",
    "teacher_tokens",
    "wall_seconds",
    "answers",
    "unscored_rate",
    "attempts",
    "last_activity",
    "error",
)


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Overview")
    plans, runs = snapshot.table("plans"), snapshot.table("runs")
    if runs.empty:
        st.info("No runs yet. Run `stillroom demo` for a first study, or `stillroom sweep PLAN` for your own.")
        return
    _figures(plans, runs)
    _running(runs)
    _health(parts.health_flags(snapshot))
    _plans(plans)
    _runs(plans, runs)


def _figures(plans: pd.DataFrame, runs: pd.DataFrame) -> None:
    answers, unscored = runs["answers"].sum(), (runs["answers"] * runs["unscored_rate"].fillna(0)).sum()
    rate = unscored / answers if answers else 0.0
    states = runs["status"].value_counts()
    figures = {
        "Plans": f"{len(plans)}",
        "Runs done": f"{states.get('done', 0)} of {len(runs)}",
        "Running": f"{states.get('running', 0)}",
        "Queued": f"{states.get('queued', 0)}",
        "Failed": f"{states.get('failed', 0)}",
        "Unscored answers": f"{rate:.1%}",
    }
    notes = {"Unscored answers": f"{unscored:,.0f} of {answers:,} answers. Runs above {UNSCORED_FLAG:.0%} are listed."}
    for column, (label, value) in zip(st.columns(len(figures)), figures.items(), strict=True):
        column.metric(label, value, help=notes.get(label))


def _running(runs: pd.DataFrame) -> None:
    st.subheader("Running now")
    running = runs[runs["status"] == "running"]
    if running.empty:
        st.caption("Nothing is running.")
    else:
        columns = ("open", "plans", "label", "seed", "progress", "updates", "rollout_tokens", "last_activity")
        _run_table(running, columns, "running")


def _health(flags: pd.DataFrame) -> None:
    st.subheader("Needs a look")
    if flags.empty:
        st.caption("Nothing.")
    else:
        left, right = st.columns([1, 3], vertical_alignment="bottom")
        counts = Counter(flags["what"])
        kinds = {ALL: f"all ({len(flags)})"} | {what: f"{what} ({n})" for what, n in counts.most_common()}
        what = choices.pick("What", "flag", list(kinds), show=kinds.__getitem__, container=left)
        shown = flags if what == ALL else flags[flags["what"] == what]
        right.caption(f"{len(shown)} of {len(flags)} reasons, in {shown['run_id'].nunique()} runs.")
        _run_table(shown, ("open", "label", "seed", "what", "detail"), "health")
    with st.expander("What is pointed out, and by which rule"):
        st.table(health.table().set_index("pointed out"))


def _plans(plans: pd.DataFrame) -> None:
    st.subheader("Plans")
    if plans.empty:
        st.caption("No plan: the runs below were started one by one.")
        return
    table = plans.assign(open=[f"{navigation.url('leaderboard', plan=plan)}#{plan}" for plan in plans["plan"]])
    table["progress"] = 100 * table["done"] / table["runs"]
    order = [
        "open",
        "progress",
        "runs",
        "done",
        "running",
        "queued",
        "failed_or_stopped",
        "not_started",
        "last_activity",
    ]
    config = parts.run_columns() | {"open": st.column_config.LinkColumn("plan", display_text=r"#(.*)$")}
    config["progress"] = st.column_config.ProgressColumn("runs done", format="%.0f%%", min_value=0, max_value=100)
    st.dataframe(table, column_order=order, column_config=config, hide_index=True, placeholder="–", key="plans")


def _runs(plans: pd.DataFrame, runs: pd.DataFrame) -> None:
    st.subheader("Runs")
    left, right, _ = st.columns([1, 1, 2])
    plan = choices.pick("Plan", "of", [ALL, *plans["plan"]], container=left)
    status = choices.pick("Status", "status", [ALL, *sorted(set(runs["status"]))], container=right)
    shown = runs
    if plan != ALL:
        shown = shown[[plan in frames.listed(used) for used in shown["plans"]]]
    if status != ALL:
        shown = shown[shown["status"] == status]
    st.caption(f"{len(shown)} of {len(runs)} runs. A run's name opens its page.")
    _run_table(shown, RUN_COLUMNS, "runs")
    table = shown.assign(plans=[", ".join(frames.listed(used)) for used in shown["plans"]])
    parts.download("Runs as CSV", parts.csv(table), "runs.csv")


def _run_table(runs: pd.DataFrame, columns: tuple[str, ...], key: str) -> None:
    table = runs.assign(open=[f"{navigation.url('run', run=run)}#{run}" for run in runs["run_id"]])
    st.dataframe(
        table, column_order=columns, column_config=parts.run_columns(), hide_index=True, placeholder="–", key=key
    )
