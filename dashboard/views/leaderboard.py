"""Leaderboard: every method of a plan on a benchmark, with intervals, costs, and its test against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, choices, frames, navigation, parts, pictures
from dashboard.escaping import plain
from dashboard.reading import Snapshot
from evaluation.results.budgets import BUDGETS
from evaluation.results.compare import BASE
from evaluation.results.comparison import Comparison, Row
from evaluation.results.latex import to_latex
from evaluation.results.plans import CompareError
from evaluation.results.tables import SIGNIFICANT, footnotes, to_csv

ALL_BENCHMARKS = "all benchmarks"
NO_BUDGET = "last"
NO_BASELINE = ""
"""In the address: no label is empty."""


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Leaderboard")
    columns = st.columns([3, 2, 2, 3, 2])
    plan = parts.pick_plan(snapshot, columns[0])
    if plan is None:
        return
    evaluated = snapshot.table("evaluated", plan=plan)
    if evaluated.empty:
        st.info(f"No run of “{plan}” has finished an evaluation yet. This page fills as evaluations end.")
        _unfinished(snapshot, plan)
        return
    split, benchmark = _pick_evaluation(evaluated, columns)
    baseline = _pick_baseline(snapshot, plan, columns[3])
    metric = parts.pick_metric(parts.most_samples(evaluated, split), columns[4])
    try:
        comparison = snapshot.comparison(plan, benchmark, split, baseline, metric, **_pick_terms())
    except CompareError as error:
        st.info(plain(error))
        return
    if not comparison.rows:
        st.info("No run has ended with a whole evaluation yet. The runs so far are listed below.")
    else:
        _charts(snapshot, comparison)
        _table(comparison)
        _rules(comparison)
    _excluded(comparison)
    if comparison.rows:
        _behind(comparison)


def _pick_evaluation(evaluated: pd.DataFrame, columns: Sequence[Any]) -> tuple[str, str | None]:
    splits = list(dict.fromkeys(evaluated["split"]))
    default = "test" if "test" in splits else splits[0]
    split = choices.pick("Split", "split", splits, default=default, container=columns[2])
    benchmarks = list(evaluated.loc[evaluated["split"] == split, "benchmark"])
    offered = [*benchmarks, ALL_BENCHMARKS] if len(benchmarks) > 1 else benchmarks
    benchmark = choices.pick("Benchmark", "benchmark", offered, container=columns[1])
    return split, None if benchmark == ALL_BENCHMARKS else benchmark


def _pick_baseline(snapshot: Snapshot, plan: str, container: Any) -> str | None:
    """A label of the plan; None for no differences, which is offered where the plan has no untrained model."""
    cells = snapshot.table("plan_cells", plan=plan)
    labels = list(dict.fromkeys(cells["label"]))
    bases = cells.loc[cells["method"] == BASE, "label"]
    offered = labels if len(bases) else [NO_BASELINE, *labels]
    default = bases.iloc[0] if len(bases) else NO_BASELINE
    show = {NO_BASELINE: "none"}
    picked = choices.pick(
        "Baseline", "baseline", offered, default=default, show=lambda label: show.get(label, label), container=container
    )
    return picked or None


def _pick_terms() -> dict[str, Any]:
    """At equal what the rows are compared, and which runs: arguments of ``compare``; raises CompareError."""
    left, middle, right = st.columns([2, 2, 5])
    show = {NO_BUDGET: "each run's last evaluation"} | {by: by.replace("_", " ") for by in BUDGETS}
    by = choices.pick(
        "At equal",
        "by",
        list(show),
        show=show.__getitem__,
        container=left,
        help="Each run at its last evaluation that spent no more than the budget. Total tokens are rollout, reference, "
        "teacher and auxiliary tokens.",
    )
    amount = choices.entry(
        "Budget", "budget", placeholder="smallest spend of a row", container=middle, help="Empty: all rows can have it."
    )
    where = choices.entry(
        "Only runs with",
        "where",
        placeholder="seed<3; optimiser.learning_rate=1e-4",
        container=right,
        help="Conditions on anything in a run's specification, as `compare --where` takes them; several with “;”.",
    )
    conditions = tuple(part.strip() for part in where.split(";") if part.strip())
    return {"where": conditions} | ({} if by == NO_BUDGET else {"budget_by": by, "budget": _amount(amount)})


def _amount(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise CompareError(f"the budget {text!r} is not a number") from None


def _title(comparison: Comparison, benchmark: str) -> str:
    return f"{parts.metric_title(comparison.metric)} on {benchmark}, {comparison.split} split"


def _charts(snapshot: Snapshot, comparison: Comparison) -> None:
    planned = parts.plan_looks(snapshot, comparison.plan)
    for benchmark in dict.fromkeys(row.benchmark for row in comparison.rows):
        rows, seeds = frames.score_rows([row for row in comparison.rows if row.benchmark == benchmark])
        # Names differ from the plan's only where the plan repeats a label and not all of its cells have a row.
        styles = {name: planned.get(name) or look for name, look in charts.looks(list(rows["name"])).items()}
        name = parts.file_stem(comparison.plan, benchmark, comparison.split, comparison.metric)
        chart = charts.score_chart(rows, seeds, styles, title=_title(comparison, benchmark))
        title = _title(comparison, benchmark)
        pictures.show(
            chart, f"scores {benchmark}", file_name=name, alt=f"Every method's {title}; the table has the same."
        )
    dashed = "" if comparison.baseline is None else f"Dashed: {plain(comparison.baseline)}. "
    st.caption(
        f"Tick: mean over seeds. Line: {comparison.confidence:.0%} interval, from three seeds on. Small marks: single "
        f"seeds. {dashed}Grey: controls, which are expected not to learn."
    )


def _table(comparison: Comparison) -> None:
    column = st.column_config
    table = frames.leaderboard(comparison)
    several = table["benchmark"].nunique() > 1
    order = [name for name in table.columns if name != "benchmark" or several]
    config = parts.run_columns() | {
        "method": column.TextColumn("method", width="medium"),
        "score": column.NumberColumn(f"{parts.metric_title(comparison.metric)} %", format="%.1f"),
        "interval": column.TextColumn(f"{comparison.confidence:.0%} interval"),
        "seeds": column.TextColumn("seeds", help="Seeds in the row, of those the plan asks for."),
        "delta": column.NumberColumn(
            f"Δ {comparison.baseline or ''}".strip(), format="%+.1f", help="In points, paired by problem."
        ),
        "delta_interval": column.TextColumn("Δ interval"),
        "p_holm": column.NumberColumn(
            "p (Holm)", format="%.4f", help=f"Adjusted for all tests of this table; below {SIGNIFICANT} is marked *."
        ),
        "unscored": column.NumberColumn("unscored %", format="%.1f"),
    }
    table["p_holm"] = table["p_holm"].round(4)
    costs = ["rollout_tokens", "trained_tokens", "teacher_tokens", "wall_seconds"]
    table[costs] = table[costs].round()
    st.dataframe(
        table,
        column_order=order,
        column_config=config,
        hide_index=True,
        placeholder="–",
        key="leaderboard",
        height="content",
    )
    name = parts.file_stem("leaderboard", comparison.plan, comparison.split, comparison.metric)
    left, right, _ = st.columns([3, 2, 4])
    parts.download("Table as CSV (unrounded, with every seed)", to_csv(comparison), f"{name}.csv", container=left)
    parts.download(
        "Table as LaTeX", lambda: to_latex(comparison), f"{name}.tex", mime="application/x-tex", container=right
    )


def _rules(comparison: Comparison) -> None:
    with st.expander("How these numbers are made"):
        st.markdown("\n".join(f"- {plain(note)}" for note in footnotes(replace(comparison, excluded=()))))
        st.markdown(f"- Plan edition `{comparison.plan_hash[:12]}`; bootstrap seed {comparison.bootstrap_seed}.")


def _excluded(comparison: Comparison) -> None:
    if not comparison.excluded:
        return
    st.subheader("Not in the table")
    rows = [
        {
            "open": f"{navigation.url('run', run=run.run_id)}#{run.run_id}",
            "label": run.label,
            "seed": run.seed,
            "benchmark": run.benchmark,
            "status": run.status,
            "reason": run.reason,
        }
        for run in comparison.excluded
    ]
    st.dataframe(
        pd.DataFrame(rows), column_config=parts.run_columns(), hide_index=True, placeholder="–", key="excluded"
    )


def _unfinished(snapshot: Snapshot, plan: str) -> None:
    cells = snapshot.table("plan_cells", plan=plan)
    table = cells.assign(open=[f"{navigation.url('run', run=run)}#{run}" for run in cells["run_id"]])
    order = ("open", "label", "seed", "status")
    st.dataframe(
        table, column_order=order, column_config=parts.run_columns(), hide_index=True, placeholder="–", key="unfinished"
    )


def _behind(comparison: Comparison) -> None:
    st.subheader("The runs behind a row")
    rows = {_row_name(row, comparison): row for row in comparison.rows}
    first = next((name for name, row in rows.items() if not row.is_baseline and not row.is_control), None)
    row = rows[choices.pick("Row", "row", list(rows), default=first)]
    if row.rule:
        st.caption(
            f"{row.rule[0].upper()}{row.rule[1:]}; {row.n_paired_problems} paired problems, {row.n_pairs} seeds."
        )
    for score in row.seeds:
        text = (
            f"seed {score.seed}: {score.value:.1%} at update {score.update}: its {row.n_problems} problems and answers"
        )
        navigation.link(
            "run",
            text,
            run=score.run_id,
            show="answers",
            benchmark=row.benchmark,
            split=comparison.split,
            update=str(score.update),
        )


def _row_name(row: Row, comparison: Comparison) -> str:
    names = frames.cell_names((r.label, r.axes) for r in comparison.rows)
    several = len({r.benchmark for r in comparison.rows}) > 1
    name = names[row.label, row.axes]
    return f"{name}, {row.benchmark}" if several else name
