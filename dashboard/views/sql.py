"""SQL: one SELECT on the published snapshot."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard import choices, frames, parts
from dashboard.escaping import plain
from dashboard.examples import EXAMPLES
from dashboard.reading import Snapshot, Version
from evaluation.results.query import MAX_ROWS, TIMEOUT_SECONDS, QueryError, QueryResult

EDITOR = "query text"
ASKED = "query asked"
ANSWER = "query answer"
SLOW_SECONDS = 3.0
"""A query that took longer is not asked again by itself when newer results are published."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave, and of which results."""

    query: str
    store: Path
    version: Version
    result: QueryResult | None
    error: str | None
    seconds: float


def page() -> None:
    """Draw the page."""
    snapshot = parts.current()
    st.title("SQL")
    st.caption(
        f"One SELECT on the published results. Nothing can be written, and no file or network reached. "
        f"At most {MAX_ROWS:,} rows and {TIMEOUT_SECONDS:.0f} s."
    )
    query = choices.text("q")
    if EDITOR not in st.session_state or query != st.session_state.get(ASKED):
        # The first drawing, or another query came with the address.
        st.session_state[EDITOR] = query or next(iter(EXAMPLES.values()))
        st.session_state[ASKED] = query
    left, right = st.columns([3, 2])
    with left:
        st.text_area("Query", key=EDITOR, height=220, persist_state="session")
        st.button("Run", type="primary", icon=":material/play_arrow:", on_click=_run)
    with right:
        st.selectbox(
            "Examples", list(EXAMPLES), index=None, placeholder="Take an example", key="example", on_change=_take
        )
        _views(snapshot)
    if query:
        _result(snapshot, query)
    else:
        st.info("Write a SELECT, or take an example, and press Run.")


def _run() -> None:
    st.session_state[ASKED] = st.session_state[EDITOR].strip()
    st.session_state.pop(ANSWER, None)
    choices.keep_text("q", st.session_state[ASKED])


def _take() -> None:
    if st.session_state["example"] is not None:
        st.session_state[EDITOR] = EXAMPLES[st.session_state["example"]]


def _views(snapshot: Snapshot) -> None:
    with st.expander("What can be read"):
        st.dataframe(snapshot.table("columns"), hide_index=True, placeholder="–", key="views")


def _result(snapshot: Snapshot, query: str) -> None:
    answer = _answer(snapshot, query)
    if answer.error is not None:
        st.error(plain(answer.error))
        return
    assert answer.result is not None
    if answer.version != snapshot.version:
        st.info(f"Newer results are there. The query took {answer.seconds:.0f} s; press Run to ask it again.")
    table = frames.result_table(answer.result)
    rows = f"{len(table):,} row{'' if len(table) == 1 else 's'}"
    if answer.result.truncated:
        st.warning(f"The first {rows}; the query has more. Aggregate or filter to see all.")
    else:
        st.caption(f"{rows}.")
    st.dataframe(table, hide_index=True, placeholder="–", key="result")
    left, right, _ = st.columns([1, 1, 3])
    parts.download("CSV", answer.result.to_csv, "query.csv", container=left)
    parquet = "application/vnd.apache.parquet"
    parts.download("Parquet", lambda: _parquet(table), "query.parquet", mime=parquet, container=right)


def _answer(snapshot: Snapshot, query: str) -> Answer:
    """The answer to the query: asked anew for newer results, unless it is slow and nobody pressed Run."""
    last: Answer | None = st.session_state.get(ANSWER)
    if last is not None and (last.query, last.store) == (query, snapshot.store):
        is_slow = last.seconds > SLOW_SECONDS
        if is_slow or last.version == snapshot.version:
            return last
    start = time.monotonic()
    result, error = None, None
    try:
        result = snapshot.query(query)
    except QueryError as refused:
        error = str(refused)
    answer = Answer(query, snapshot.store, snapshot.version, result, error, time.monotonic() - start)
    st.session_state[ANSWER] = answer
    return answer


def _parquet(table: pd.DataFrame) -> bytes:
    content = io.BytesIO()
    table.to_parquet(content, index=False)
    return content.getvalue()
