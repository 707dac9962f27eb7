"""The answers of one evaluation of a run, with their verdicts and texts."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import choices, frames, navigation, parts
from dashboard.escaping import plain
from dashboard.reading import Snapshot
from evaluation.results.spool import SAMPLES_FOLDER

ALL = "all"
TABLE = "answers"
LONGEST_IN_LIST = 300
"""Characters of a text that the list shows; below it, one answer is shown whole."""


def draw(snapshot: Snapshot, run: dict[str, Any]) -> None:
    """Draw the part of the run page that lists the answers."""
    scores = snapshot.table("run_scores", run_id=run["run_id"])
    if scores.empty:
        st.info("No evaluation of this run has ended yet.")
        return
    columns = st.columns(4)
    benchmark = choices.pick("Benchmark", "benchmark", list(dict.fromkeys(scores["benchmark"])), container=columns[0])
    scores = scores[scores["benchmark"] == benchmark]
    split = choices.pick("Split", "split", list(dict.fromkeys(scores["split"])), container=columns[1])
    scores = scores[scores["split"] == split].sort_values("update", ascending=False)
    update = choices.pick("Update", "update", [str(u) for u in scores["update"]], container=columns[2])
    score = scores[scores["update"] == int(update)].iloc[0]
    source = score["source_run_id"]
    if score["from_base"]:
        st.caption(f"Update 0 is the untrained model, evaluated in `{source}`.")
    answers = snapshot.table("answers", run_id=source, benchmark=benchmark, split=split, update=int(update))
    verdicts = [ALL, *sorted(set(answers["verdict"]))]
    verdict = choices.pick("Verdict", "verdict", verdicts, container=columns[3])
    st.caption(_count(answers, score))
    answers, problems = _read_texts(snapshot, source, answers)
    for problem in problems:
        st.warning(problem)
    shown = answers if verdict == ALL else answers[answers["verdict"] == verdict]
    asked = {"run_id": source, "benchmark": benchmark, "split": split, "update": int(update)}
    stem = parts.file_stem(source, benchmark, split, update, "answers")
    _list(shown.reset_index(drop=True), stem, snapshot, asked)


def _count(answers: pd.DataFrame, score: pd.Series) -> str:
    counts = answers["verdict"].value_counts()
    listed = ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items())
    accuracy = "–" if pd.isna(score["accuracy"]) else f"{score['accuracy']:.1%}"
    return (
        f"Accuracy {accuracy}: the mean over {score['n_problems']} problems of the share of a problem's "
        f"scored answers that pass. {len(answers)} answers: {listed}."
    )


def _read_texts(snapshot: Snapshot, run_id: str, answers: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The answers with their texts, and why some have none."""
    texts, problems = {}, []
    for file in dict.fromkeys(answers["sample_file"]):
        try:
            texts[file] = snapshot.texts(run_id, file)
        except FileNotFoundError:
            problems.append(
                f"The texts in `{file}` of run `{run_id}` are not in the store any more; the verdicts below still hold."
            )
        except (OSError, ValueError) as error:
            problems.append(f"The texts in `{file}` cannot be read: {error}")
    return frames.with_texts(answers, texts), problems


def _list(answers: pd.DataFrame, stem: str, snapshot: Snapshot, asked: dict[str, Any]) -> None:
    if answers.empty:
        st.info("No answer has this verdict.")
        return
    keys = [f"{a.problem_id} #{a.sample_index}" for a in answers.itertuples()]
    order = ["verdict", "problem_id", "sample_index", "expected", "extracted", "completion", "prompt", "score"]
    order += ["completion_tokens", "finish_reason"]
    config = {
        "problem_id": st.column_config.TextColumn("problem"),
        "finish_reason": st.column_config.TextColumn("ended by"),
        "sample_index": st.column_config.NumberColumn("sample"),
        "completion": st.column_config.TextColumn("answer", width="large"),
        "completion_tokens": st.column_config.NumberColumn("tokens"),
    }

    def read_selected() -> None:
        rows = st.session_state[TABLE]["selection"]["rows"]
        if rows and rows[0] < len(keys):
            choices.set_choice("answer", keys[rows[0]])

    st.dataframe(
        frames.shortened(answers, ("prompt", "completion"), LONGEST_IN_LIST),
        column_order=order,
        column_config=config,
        hide_index=True,
        placeholder="–",
        on_select=read_selected,
        selection_mode="single-row",
        key=TABLE,
    )
    parts.download("Answers as CSV", lambda: parts.csv(answers), f"{stem}.csv")
    chosen = answers.iloc[keys.index(choices.pick("Read an answer", "answer", keys))]
    _link_trace(snapshot, asked, chosen)
    _read_one(chosen)


def _link_trace(snapshot: Snapshot, asked: dict[str, Any], answer: pd.Series) -> None:
    """A link to the answer's trace, where there is one."""
    traced = snapshot.table("run_traces", **asked)
    traced = traced[(traced["problem_id"] == answer["problem_id"]) & (traced["sample_index"] == answer["sample_index"])]
    if traced.empty:
        return
    place = {name: str(asked[name]) for name in ("benchmark", "split", "update")}
    run, plan = asked["run_id"], traced["plan"].iloc[0]
    navigation.link("traces", "Token by token", plan=plan, problem=answer["problem_id"], run=run, **place)


def _read_one(answer: pd.Series) -> None:
    left, right = st.columns(2)
    with left:
        st.markdown("**Problem**")
        _text(answer["prompt"])
        st.markdown("**Expected**")
        _text(answer["expected"])
    with right:
        st.markdown(f"**Answer** ({answer['completion_tokens']} tokens, ended by {answer['finish_reason']})")
        _text(answer["completion"])
        st.markdown(f"**Verdict** {answer['verdict'].replace('_', ' ')}, read as")
        _text(answer["extracted"])
    if not pd.isna(answer["error"]):
        st.error(plain(f"Grader {answer['grader']} {answer['grader_version']}: {answer['error']}"))
    if isinstance(answer["feedback"], str) and answer["feedback"]:
        st.markdown("**Feedback**")
        _text(answer["feedback"])
    st.caption(
        f"Graded by {answer['grader']} {answer['grader_version']}. "
        f"Text: row {answer['sample_row']} of `{answer['sample_file']}` ({SAMPLES_FOLDER} of the run)."
    )


def _text(value: Any) -> None:
    """A text as it is, without Markdown."""
    st.code("–" if pd.isna(value) else str(value) or "(empty)", language=None, wrap_lines=True)
