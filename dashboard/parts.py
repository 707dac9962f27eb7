"""Pieces that several pages share: choosing a plan, tables, downloads, and what to do when there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, health
from dashboard.charts import Look, looks
from dashboard.reading import Snapshot
from evaluation.results.plans import METRICS

Download = bytes | str | Callable[[], bytes | str]
SNAPSHOT = "snapshot"
TIME_FORMAT = "YYYY-MM-DD HH:mm:ss"

METRIC_TITLES = {
    "accuracy": "accuracy",
    "score": "score",
    "lenient_accuracy": "lenient accuracy",
    "format_rate": "well-formed answers",
}
"""What pages call the metrics of an evaluation."""


def current() -> Snapshot:
    """The snapshot that this drawing of the page reads."""
    return cast(Snapshot, st.session_state[SNAPSHOT])


def utc_now() -> datetime:
    """Now in UTC without a zone, as the store keeps times."""
    return datetime.now(UTC).replace(tzinfo=None)


def health_flags(snapshot: Snapshot) -> pd.DataFrame:
    """What needs a look, over all runs: the rows of ``health.health``."""
    signs = snapshot.table("training_signs", **health.PARAMETERS)
    return health.health(snapshot.table("runs"), signs, snapshot.table("score_signs"), utc_now())


def pick_plan(snapshot: Snapshot, container: Any = st) -> str | None:
    """The plan to show; says what to do and returns None when there is none."""
    plans = list(snapshot.table("plans")["plan"])
    if not plans:
        st.info("No plan has been recorded in this store yet. Run `stillroom demo` or `stillroom sweep PLAN`.")
        return None
    return choices.pick("Plan", "plan", plans, container=container)


def pick_evaluation(snapshot: Snapshot, plan: str, containers: tuple[Any, Any]) -> tuple[str, str] | None:
    """Benchmark and split among those the plan's runs were evaluated on; None when there are none yet."""
    evaluated = snapshot.table("evaluated", plan=plan)
    if evaluated.empty:
        st.info(f"No run of “{plan}” has finished an evaluation yet. This page fills as evaluations end.")
        return None
    split = pick_split(evaluated, containers[1])
    benchmarks = list(evaluated.loc[evaluated["split"] == split, "benchmark"])
    return choices.pick("Benchmark", "benchmark", benchmarks, container=containers[0]), split


def pick_split(evaluated: pd.DataFrame, container: Any = st) -> str:
    """A split of ``queries/evaluated.sql``: the test split unless there is none."""
    splits = list(dict.fromkeys(evaluated["split"]))
    return choices.pick(
        "Split", "split", splits, default="test" if "test" in splits else splits[0], container=container
    )


def pick_metric(samples: int = 1, container: Any = st) -> str:
    """A metric of an evaluation; with several answers a problem also pass@k, pass^k and maj@k for them."""
    at = [2**power for power in range(1, samples.bit_length()) if 2**power <= samples]
    repeated = [f"{kind}{k}" for kind in ("pass@", "pass^", "maj@") for k in dict.fromkeys([*at, samples]) if k > 1]
    return choices.pick("Metric", "metric", [*METRICS, *repeated], show=metric_title, container=container)


def metric_title(metric: str) -> str:
    """What pages call a metric of an evaluation."""
    return METRIC_TITLES.get(metric, metric)


def most_samples(evaluated: pd.DataFrame, split: str) -> int:
    """Answers a problem of a split in ``queries/evaluated.sql``."""
    return int(evaluated.loc[evaluated["split"] == split, "samples"].max())


def pick_axis(container: Any = st) -> str:
    """What curves are drawn along."""
    return choices.pick(
        "Along", "x", list(charts.AXIS_TITLES), show=charts.AXIS_TITLES.__getitem__, container=container
    )


def plan_looks(snapshot: Snapshot, plan: str) -> dict[str, Look]:
    """The looks of a plan's cells by name: the same on every page and under every filter."""
    cells = frames.named(snapshot.table("plan_cells", plan=plan))
    return looks(
        list(cells["name"]), set(cells.loc[cells["is_control"], "name"]), set(cells.loc[cells["is_base"], "name"])
    )


def download(label: str, data: Download, file_name: str, *, mime: str = "text/csv", container: Any = st) -> None:
    """A download that does not draw the page again; a callable makes the content when it is asked for."""
    container.download_button(
        label, data, file_name, mime, icon=":material/download:", on_click="ignore", key=f"download {file_name}"
    )


def run_columns() -> dict[str, Any]:
    """How tables show the columns that describe runs."""
    column = st.column_config
    return {
        "label": column.TextColumn("label", width="medium"),
        "run_id": column.TextColumn("run"),
        "open": column.LinkColumn("run", display_text=r"#(.*)$", width="medium"),
        "plans": column.ListColumn("plans"),
        "progress": column.ProgressColumn("budget spent", format="%.0f%%", min_value=0, max_value=100),
        "rollout_tokens": column.NumberColumn("rollout tokens", format="localized"),
        "trained_tokens": column.NumberColumn("trained tokens", format="localized"),
        "teacher_tokens": column.NumberColumn("teacher tokens", format="localized"),
        "wall_seconds": column.NumberColumn("wall s", format="%.0f"),
        "unscored_rate": column.NumberColumn("unscored", format="percent"),
        "non_finite_metrics": column.NumberColumn("not finite"),
        "bad_lines": column.NumberColumn("bad lines"),
        "created_at": column.DatetimeColumn("planned (UTC)", format=TIME_FORMAT),
        "planned_at": column.DatetimeColumn("planned (UTC)", format=TIME_FORMAT),
        "last_activity": column.DatetimeColumn("last record (UTC)", format=TIME_FORMAT),
        "is_control": column.CheckboxColumn("control"),
        "failed_or_stopped": column.NumberColumn("failed or stopped"),
        "not_started": column.NumberColumn("not started"),
    }


def file_stem(*parts: str) -> str:
    """A name for a downloaded file."""
    text = "-".join(parts)
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def csv(frame: pd.DataFrame) -> str:
    """A table as CSV, unrounded."""
    return frame.to_csv(index=False, lineterminator="\n")
