"""Charts on a page, with ways to take them along: the toolbar above a chart saves PNG, the button below it SVG."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import streamlit as st
from streamlit.components.v2 import component

from dashboard.charts import Drawing

SCRIPT = Path(__file__).with_name("save_svg.js")
BUTTON = '<button type="button">Save as SVG</button>'
STYLE = """
button {
  background: none; border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius); cursor: pointer;
  color: var(--st-text-color); font-family: var(--st-font); font-size: 0.875rem; padding: 0.25rem 0.75rem;
}
button:hover { border-color: var(--st-primary-color); color: var(--st-primary-color); }
"""


@cache
def _save_button() -> Any:
    # Not at import: a component can be registered only once, and only a running app has use for it.
    return component("stillroom_save_svg", html=BUTTON, css=STYLE, js=SCRIPT.read_text(encoding="utf-8"))


def show(
    chart: Drawing,
    key: str,
    *,
    file_name: str,
    alt: str,
    on_select: Callable[[], None] | None = None,
    width: Literal["stretch", "content"] = "stretch",
) -> None:
    """Draw ``chart``; ``key`` is unique on the page, ``file_name`` (no ending) is what a saved chart is called.

    ``alt`` says what the chart shows to those who cannot see it. ``on_select`` is called after a click on a mark that
    the chart lets select.
    """
    container = "chart-" + re.sub(r"[^a-z0-9]+", "-", key.lower())
    with st.container(key=container):
        st.altair_chart(chart, key=key, alt=alt, on_select=on_select or "ignore", width=width)
    _save_button()(key=f"save {key}", data={"container": container, "fileName": file_name})
