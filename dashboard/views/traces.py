"""Traces: what teacher and student thought of every token of an answer, two answers beside each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import choices, frames, navigation, parts, token_map, traces
from dashboard.escaping import plain
from dashboard.reading import Snapshot
from evaluation.results.store import Store
from evaluation.results.traces import TokenTrace, read_trace

LONGEST_PROMPT = 60
"""Characters of a problem that the menu shows."""
CACHED_TRACES = 64
VERDICT_COLOURS = {"pass": "green", "fail": "red", "not_scored": "grey"}
PROMPT_STYLE = "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;font-size:0.85rem"
ADDED_STYLE = "background-color:rgba(0,114,178,0.28);border-radius:2px"


@dataclass(frozen=True, slots=True)
class Pane:
    """One answer of the problem: which it is and what is stored of it."""

    suffix: str
    """Ends the address's parameters of this pane."""
    name: str
    facts: dict[str, Any]
    trace: TokenTrace


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("Traces")
    plans = list(snapshot.table("traced_plans")["plan"])
    if not plans:
        _no_traces()
        return
    first = st.columns([2, 2, 1, 3])
    plan = choices.pick("Plan", "plan", plans, container=first[0])
    rows = frames.named(snapshot.table("traces", plan=plan))
    benchmark = choices.pick("Benchmark", "benchmark", _distinct(rows["benchmark"]), container=first[1])
    rows = rows[rows["benchmark"] == benchmark]
    split = choices.pick("Split", "split", _distinct(rows["split"]), container=first[2])
    rows = rows[rows["split"] == split]
    prompts = dict(zip(rows["problem_id"], rows["prompt"], strict=True))
    problem = choices.pick(
        "Problem", "problem", list(prompts), show=lambda name: _problem_name(name, prompts[name]), container=first[3]
    )
    rows = rows[rows["problem_id"] == problem]
    beside = choices.switch("Two beside each other", "two", default=True, help="Another update, method or seed.")
    columns: list[Any] = [*st.columns(2)] if beside else [st.container()]
    panes = [_choose(snapshot, rows, "", columns[0])]
    if beside:
        panes.append(_choose(snapshot, rows, "2", columns[1]))
    _draw(columns, panes, rows.iloc[0])


def _no_traces() -> None:
    st.info(
        "No run of this store has traces. Runs store them for the first problems of every evaluation "
        "(`evaluation.trace_problems`, 8 unless a plan says otherwise); those of older versions have none: "
        "run the plan again, or `stillroom demo`."
    )


def _distinct(values: pd.Series) -> list[str]:
    return list(dict.fromkeys(values))


def _problem_name(problem: str, prompt: Any) -> str:
    text = "" if pd.isna(prompt) else " ".join(str(prompt).split())
    short = text if len(text) <= LONGEST_PROMPT else text[: LONGEST_PROMPT - 1] + "…"
    return problem if short in ("", problem) else f"{problem} · {short}"


# --- choosing -------------------------------------------------------------------------------------------------------


def _choose(snapshot: Snapshot, rows: pd.DataFrame, suffix: str, column: Any) -> Pane | None:
    """The run and update of one pane, and its trace; None (said) where it cannot be read."""
    trained = rows[~rows["is_base"]]
    names = {row["run_id"]: f"{row['name']} · seed {row['seed']}" for row in frames.records(rows)}
    first = trained["run_id"].iloc[0] if len(trained) else rows["run_id"].iloc[0]
    left, right = column.columns([3, 1])
    run = choices.pick("Run", f"run{suffix}", list(names), default=first, show=lambda name: names[name], container=left)
    own = rows[rows["run_id"] == run].sort_values("update", ascending=suffix != "")
    updates = [str(update) for update in dict.fromkeys(own["update"])]
    update = choices.pick("Update", f"update{suffix}", updates, container=right)
    (facts, *_) = frames.records(own[own["update"] == int(update)])
    try:
        trace = _trace(snapshot, run, facts["sample_file"], int(facts["sample_row"]))
    except FileNotFoundError:
        column.warning(f"The trace in `{facts['sample_file']}` of run `{run}` is not in the store any more.")
        return None
    except (OSError, ValueError) as error:
        column.error(plain(f"The trace of {names[run]} cannot be read: {error}"))
        return None
    return Pane(suffix, f"{names[run]} · update {update}", facts, trace)


def _trace(snapshot: Snapshot, run: str, sample_file: str, row: int) -> TokenTrace:
    folder = Store(snapshot.store).runs / run
    status = (folder / sample_file).stat()
    return _read(str(folder), sample_file, row, (status.st_ino, status.st_mtime_ns))


@st.cache_data(max_entries=CACHED_TRACES, show_spinner=False)
def _read(folder: str, sample_file: str, row: int, version: tuple[int, int]) -> TokenTrace:
    return read_trace(Path(folder), sample_file, row)


# --- drawing --------------------------------------------------------------------------------------------------------


def _draw(columns: list[Any], panes: list[Pane | None], problem: pd.Series) -> None:
    read = [pane for pane in panes if pane is not None]
    if not read:
        return
    offered = traces.measures_of(pane.trace for pane in read)
    title = st.container()
    with title:
        measure = choices.pick("Colour", "colour", offered, show=lambda name: traces.MEASURES[name].title)
    scale = traces.scale_of(traces.values_of(pane.trace, measure) for pane in read)
    st.html(_legend(measure, scale))
    for column, pane in zip(st.columns(len(columns)), panes, strict=True):
        if pane is not None:
            with column:
                _pane(pane, measure, scale)
    st.subheader("Problem")
    left, right = st.columns([3, 1])
    with left:
        st.code("–" if pd.isna(problem["prompt"]) else problem["prompt"], language=None, wrap_lines=True)
    with right:
        st.markdown("**Expected**")
        st.code("–" if pd.isna(problem["expected"]) else problem["expected"], language=None, wrap_lines=True)
    st.subheader("Prompts")
    for pane in read[:1] if _same_prompts(read) else read:
        _prompts(pane)


def _legend(measure: str, scale: float) -> str:
    chosen = traces.MEASURES[measure]
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0) if chosen.signed else (0.0, 0.25, 0.5, 0.75, 1.0)
    boxes = "".join(
        f'<span style="background-color:{traces.colour(step * scale, scale, signed=chosen.signed)};'
        f'padding:0.15rem 0.6rem">{traces.number(step * scale)}</span>'
        for step in steps
    )
    unit = f" ({chosen.unit})" if chosen.unit else ""
    rule = f"strongest from {traces.number(scale)} on, the 98th percentile of what is shown; no colour: no value"
    return f'<div style="font-size:0.85rem">{escape(chosen.title)}{unit}: {boxes} {escape(rule)}</div>'


def _pane(pane: Pane, measure: str, scale: float) -> None:
    facts, trace = pane.facts, pane.trace
    verdict = facts["verdict"]
    st.markdown(f":{VERDICT_COLOURS.get(verdict, 'grey')}-badge[{verdict.replace('_', ' ')}] {plain(pane.name)}")
    st.caption(_about(facts, trace))
    if facts["note"] and not pd.isna(facts["note"]):
        st.info(plain(f"No teacher here: {facts['note']}."))
    if traces.values_of(trace, measure) is None:
        st.warning(f"This answer has no {traces.MEASURES[measure].title}.")
    chosen = _chosen(pane, measure)
    label = f"{len(trace.tokens)} tokens by {traces.MEASURES[measure].title}"
    token_map.show(traces.token_cells(trace, measure, scale), chosen, f"token{pane.suffix}", label=label)
    _token(pane, chosen)
    if trace.context_text is not None:
        st.markdown(f"**Privileged context** ({plain(trace.context_kind.replace('_', ' '))})")
        st.code(trace.context_text, language=None, wrap_lines=True)
    if trace.feedback:
        st.markdown("**Feedback**")
        st.code(trace.feedback, language=None, wrap_lines=True)
    run, update = facts["run_id"], str(facts["update"])
    stem = parts.file_stem(run, facts["benchmark"], facts["problem_id"], update, "trace")
    left, middle, right = st.columns(3)
    parts.download(
        "Trace as JSON", lambda: traces.as_json(trace, facts), f"{stem}.json", mime="application/json", container=left
    )
    parts.download("Tokens as CSV", lambda: parts.csv(traces.token_table(trace)), f"{stem}.csv", container=middle)
    address = {"benchmark": facts["benchmark"], "split": facts["split"], "update": update}
    navigation.link("run", "The evaluation", container=right, run=run, show="answers", **address)


def _about(facts: dict[str, Any], trace: TokenTrace) -> str:
    said = [f"{len(trace.tokens)} tokens"]
    if trace.divergence is not None:
        said.append(f"mean {facts['divergence']} {traces.number(facts['mean_divergence'])} nats")
    if trace.forward_kl is not None:
        said.append(f"mean KL(teacher ‖ student) {traces.number(facts['mean_forward_kl'])} nats")
        said.append(f"teacher: {facts['teacher']} weights, context {trace.context_kind.replace('_', ' ')}")
    said.append(f"mean entropy of the student {traces.number(facts['mean_entropy'])} nats")
    said.append(f"temperature {trace.temperature:g}")
    said.append(f"sample {trace.sample_index}, drawn with seed {trace.seed}")
    return plain("; ".join(said)) + "."


def _chosen(pane: Pane, measure: str) -> int:
    """The token that the address names, else the one with the largest value."""
    wanted = choices.text(f"token{pane.suffix}")
    if wanted.isdecimal():
        return min(int(wanted), len(pane.trace.tokens) - 1)
    return traces.strongest(pane.trace, measure)


def _token(pane: Pane, index: int) -> None:
    trace = pane.trace
    said = [f"Token {index} {traces.name_of(trace.tokens[index])}"]
    said.append(f"student {100 * _probability(trace.student_logprob[index]):.3g} %")
    if trace.teacher_logprob is not None:
        said.append(f"teacher {100 * _probability(trace.teacher_logprob[index]):.3g} %")
    for name in ("divergence", "forward_kl", "weight"):
        values = traces.values_of(trace, name)
        if values is not None:
            said.append(f"{traces.MEASURES[name].title} {traces.number(values[index])}")
    st.markdown(plain("; ".join(said)))
    teacher, student = traces.alternatives(trace, index)
    columns = st.columns(2)
    for column, side, table in zip(columns, ("teacher", "student"), (teacher, student), strict=True):
        if table is not None:
            column.caption(f"Likeliest to the {side}")
            column.dataframe(table, hide_index=True, column_config=_shares(side), key=f"{side} top{pane.suffix}")


def _shares(side: str) -> dict[str, Any]:
    """How the table of one side shows the probabilities: its own as a bar, the other's as a number."""
    other = {"teacher": "student", "student": "teacher"}[side]
    return {
        "token": st.column_config.TextColumn(width=50),
        side: st.column_config.ProgressColumn(f"{side} %", format="%.2f", min_value=0, max_value=100, width=70),
        other: st.column_config.NumberColumn(f"{other} %", format="%.2f", width=70),
    }


def _probability(logprob: float) -> float:
    return math.exp(min(0.0, logprob))


# --- prompts --------------------------------------------------------------------------------------------------------


def _same_prompts(panes: list[Pane]) -> bool:
    return len({(pane.trace.student_prompt, pane.trace.teacher_prompt) for pane in panes}) == 1


def _prompts(pane: Pane) -> None:
    trace = pane.trace
    st.caption(plain(pane.name))
    left, right = st.columns(2)
    with left:
        st.markdown("**Student's prompt**")
        st.html(_block(escape(trace.student_prompt)))
    with right:
        st.markdown("**Teacher's prompt** (what it has more is marked)")
        if trace.teacher_prompt is None:
            st.caption("No teacher looked at this answer.")
            return
        before, inside, after = (escape(text) for text in traces.added(trace.student_prompt, trace.teacher_prompt))
        st.html(_block(f'{before}<mark style="{ADDED_STYLE};color:inherit">{inside}</mark>{after}'))


def _block(text: str) -> str:
    return f'<div style="{PROMPT_STYLE}">{text}</div>'
