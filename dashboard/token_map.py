"""The map of an answer's tokens: a component of ours, so that a token can be chosen by a click."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from dashboard import choices

SCRIPT = Path(__file__).with_name("token_map.js")
PLACE = '<div class="tokens" role="group" tabindex="0"></div>'
STYLE = """
.tokens {
  font-family: var(--st-code-font); font-size: 0.9rem; line-height: 1.75; white-space: pre-wrap;
  overflow-wrap: anywhere; color: var(--st-text-color); border: 1px solid var(--st-border-color);
  border-radius: var(--st-base-radius); padding: 0.5rem; max-height: 34rem; overflow-y: auto;
}
.tokens span { cursor: pointer; border-radius: 2px; padding: 0.1em 0.02em; }
.tokens span:hover { outline: 1px solid var(--st-text-color); }
.tokens span.chosen { outline: 2px solid var(--st-primary-color); outline-offset: 1px; }
"""


@cache
def _map() -> Any:
    # Not at import: a component can be registered only once, and only a running app has use for it.
    return component("stillroom_token_map", html=PLACE, css=STYLE, js=SCRIPT.read_text(encoding="utf-8"))


def show(tokens: list[list[str]], chosen: int, parameter: str, *, label: str) -> None:
    """Draw the tokens ([text, colour, hint] each); choosing one changes ``parameter`` of the address."""
    key = f"tokens {parameter}"

    def choose() -> None:
        token = st.session_state[key].token
        if token is not None:
            choices.keep_text(parameter, str(int(token)))

    _map()(key=key, data={"tokens": tokens, "chosen": chosen, "label": label}, on_token_change=choose)
