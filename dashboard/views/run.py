"""Run: what one run was, what it measured, and every answer behind its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import choices, frames, navigation, parts
from dashboard.escaping import plain
from dashboard.reading import Snapshot
from dashboard.views import answers, run_compare, run_metrics
from evaluation.results.records import COST_KEYS

NO_OTHER = "no other run"
SHARES = {
    "accuracy": "accuracy",
    "standard_error": "±",
    "unscored_rate": "unscored",
    "lenient_accuracy": "lenient",
    "format_rate": "well-formed",
    "truncated_rate": "cut off",
}
"""Columns that are shares, and their titles in percent."""
TOTAL_KEYS = ("rollout_tokens", "reference_tokens", "teacher_tokens", "auxiliary_tokens")
"""What is counted as total tokens, as in the views."""
STATE_COLOURS = {"done": "green", "running": "blue", "queued": "grey", "failed": "red", "stopped": "orange"}


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Run")
    runs = snapshot.table("runs")
    if runs.empty:
        st.info("No runs yet. Run `stillroom demo` for a first study.")
        return
    names = _names(runs)
    run_id = choices.pick("Run", "run", list(names), show=names.__getitem__)
    (run,) = frames.records(snapshot.table("run", run_id=run_id))
    _head(run)
    _flags(snapshot, run_id)
    titles = {name: section.title for name, section in SECTIONS.items()}
    shown = choices.pick("Show", "show", list(titles), show=titles.__getitem__, kind="segments")
    SECTIONS[shown].draw(snapshot, run)


def _names(runs: pd.DataFrame) -> dict[str, str]:
    """Run id -> what the menu calls it."""
    return {run["run_id"]: _name(run) for run in frames.records(runs)}


def _name(run: dict[str, Any]) -> str:
    plans = ", ".join(frames.listed(run["plans"])) or "no plan"
    label = run["method"] if pd.isna(run["label"]) else run["label"]
    return f"{label} · seed {run['seed']} · {plans} · {run['status']} · {run['run_id']}"


def _head(run: dict[str, Any]) -> None:
    status = run["status"]
    badge = f":{STATE_COLOURS.get(status, 'grey')}-badge[{status}]"
    control = " :grey-badge[control]" if run["is_control"] else ""
    st.markdown(f"{badge}{control} `{run['run_id']}`")
    if run["error"]:
        st.error(plain(run["error"]))
    figures = {
        "Method": run["label"] if not pd.isna(run["label"]) else run["method"],
        "Model": run["model"],
        "Seed": run["seed"],
        "Updates": f"{run['updates']:,}",
        "Rollout tokens": _count(run["rollout_tokens"]),
        "Trained tokens": _count(run["trained_tokens"]),
        "Wall": "–" if pd.isna(run["wall_seconds"]) else frames.duration(run["wall_seconds"]),
        "Unscored": "–" if pd.isna(run["unscored_rate"]) else f"{run['unscored_rate']:.1%}",
    }
    for column, (label, value) in zip(st.columns([3, 3, 1, 1, 2, 2, 2, 2]), figures.items(), strict=True):
        column.metric(label, plain(value))


def _flags(snapshot: Snapshot, run_id: str) -> None:
    """What needs a look in this run, as the overview lists it."""
    flags = parts.health_flags(snapshot)
    own = flags[(flags["run_id"] == run_id) & ~flags["what"].isin(["failed", "stopped"])]
    if not own.empty:
        st.warning("\n".join(f"- **{flag['what']}**: {plain(flag['detail'])}" for flag in frames.records(own)))


def _count(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:,.0f}"


# --- sections -------------------------------------------------------------------------------------------------------


def _scores(snapshot: Snapshot, run: dict[str, Any]) -> None:
    scores = snapshot.table("run_scores", run_id=run["run_id"])
    if scores.empty:
        st.info("No evaluation of this run has ended yet.")
        return
    st.caption("Every whole evaluation. Accuracy: mean over problems; ±: standard error over problems or clusters.")
    sources = zip(scores["source_run_id"], scores["benchmark"], scores["split"], scores["update"], strict=True)
    addresses = [
        navigation.url("run", run=source, show="answers", benchmark=name, split=split, update=str(update))
        for source, name, split, update in sources
    ]
    table = scores.assign(answers=[f"{address}#{n}" for address, n in zip(addresses, scores["n_answers"], strict=True)])
    table[list(SHARES)] *= 100
    column = st.column_config
    config = parts.run_columns() | {
        name: column.NumberColumn(f"{title} %", format="%.1f") for name, title in SHARES.items()
    }
    config |= {
        "n_problems": column.NumberColumn("problems"),
        "answers": column.LinkColumn(display_text=r"#(.*)$", help="Opens the answers."),
        "completion_tokens": column.NumberColumn("tokens an answer", format="%.1f"),
        "from_base": column.CheckboxColumn("untrained", help="Evaluated in the run of the untrained model."),
    }
    order = ["benchmark", "split", "update", "accuracy", "standard_error", "n_problems", "answers", "unscored_rate"]
    order += ["lenient_accuracy", "format_rate", "truncated_rate", "completion_tokens"]
    order += ["rollout_tokens", "trained_tokens", "wall_seconds", "from_base"]
    st.dataframe(table, column_order=order, column_config=config, hide_index=True, placeholder="–", key="run scores")
    parts.download("Scores as CSV", parts.csv(scores), parts.file_stem(run["run_id"], "scores") + ".csv")


def _spec(snapshot: Snapshot, run: dict[str, Any]) -> None:
    spec = json.loads(run["spec"])
    others = snapshot.table("runs")
    names = {NO_OTHER: NO_OTHER} | _names(others[others["run_id"] != run["run_id"]])
    other = choices.pick("Compare with", "other", list(names), show=names.__getitem__)
    if other != NO_OTHER:
        run_compare.draw(snapshot, run, other)
    uses = snapshot.table("run_plans", run_id=run["run_id"])
    if not uses.empty:
        st.subheader("In plans")
        st.dataframe(uses, column_config=parts.run_columns(), hide_index=True, placeholder="–", key="uses")
    st.subheader("Specification")
    st.json(spec, expanded=1)
    parts.download(
        "Specification as JSON",
        json.dumps(spec, indent=1),
        parts.file_stem(run["run_id"], "spec") + ".json",
        mime="application/json",
    )


def _cost(run: dict[str, Any]) -> None:
    st.subheader("Cost of training")
    known = {key: run[key] for key in COST_KEYS if not pd.isna(run[key])}
    if not known:
        st.caption("No update has been recorded.")
        return
    total = sum(known.get(key, 0) for key in TOTAL_KEYS)
    rows = [{"cost": key.replace("_", " "), "so far": float(value)} for key, value in known.items()]
    rows.append({"cost": "total tokens (rollout, reference, teacher, auxiliary)", "so far": float(total)})
    config = {"so far": st.column_config.NumberColumn("so far", format="localized")}
    st.dataframe(pd.DataFrame(rows), column_config=config, hide_index=True, key="cost", height="content")
    st.caption("Evaluations are not in it. FLOP are an estimate from parameters and tokens.")


def _provenance(snapshot: Snapshot, run: dict[str, Any]) -> None:
    _cost(run)
    st.subheader("Events")
    config = {"happened_at": st.column_config.DatetimeColumn("at (UTC)", format=parts.TIME_FORMAT)}
    st.dataframe(
        snapshot.table("run_events", run_id=run["run_id"]),
        column_config=config,
        hide_index=True,
        placeholder="–",
        key="events",
    )
    st.subheader("Processes that wrote its records")
    times = {
        name: st.column_config.DatetimeColumn(f"{title} (UTC)", format=parts.TIME_FORMAT)
        for name, title in (("first_at", "first record"), ("last_at", "last record"))
    }
    processes = snapshot.table("run_processes", run_id=run["run_id"])
    st.dataframe(processes, column_config=times, hide_index=True, placeholder="–", key="processes")
    st.subheader("Provenance")
    st.json(json.loads(run["provenance"]), expanded=2)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page."""

    title: str
    draw: Callable[[Snapshot, dict[str, Any]], None]


SECTIONS = {
    "scores": Section("Scores", _scores),
    "answers": Section("Answers", answers.draw),
    "metrics": Section("Metrics", run_metrics.draw),
    "controllers": Section("Controllers", run_metrics.draw_controllers),
    "spec": Section("Specification", _spec),
    "provenance": Section("Cost and provenance", _provenance),
}
"""Name in the address -> part, in the order of the page."""
