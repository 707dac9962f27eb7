"""Widgets whose values live in the page's address, so that a link reproduces the view.

All values are written, defaults too: a default may depend on the data (the newest plan), and a link must not drift.
A value that arrives with the address wins over the widget's; otherwise the widget's own stays. Values are kept when
the user goes to another page and comes back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, cast

import streamlit as st

from dashboard.escaping import plain

_MEMORY = "choices"
_CHOSEN = "choices of this drawing"
_WRITTEN = "choices in the address"


def pick(
    label: str,
    key: str,
    options: Sequence[str],
    *,
    default: str | None = None,
    show: Callable[[str], str] = str,
    help: str | None = None,
    kind: Literal["select", "segments"] = "select",
    container: Any = st,
) -> str:
    """One of ``options`` (not empty); ``default`` None takes the first. ``key`` names the address's parameter."""
    offered = list(options)
    fallback = offered[0] if default is None else default
    name = _widget(key)
    wanted = st.session_state.get(name, _memory().get(key))
    arrived = _arrived(key)
    gone = arrived[0] if arrived and arrived[0] not in offered else None
    if arrived and gone is None:
        wanted = arrived[0]
    st.session_state[name] = wanted if wanted in offered else fallback
    if gone is not None:
        shown = plain(show(st.session_state[name]))
        st.warning(f"The link asks for {label.lower()} “{plain(gone)}”, which is not here. Showing “{shown}”.")
    if kind == "segments":
        container.segmented_control(
            label, offered, key=name, format_func=show, required=True, label_visibility="collapsed"
        )
    else:
        container.selectbox(label, offered, key=name, format_func=show, help=help)
    chosen = cast(str, st.session_state[name])
    _remember(key, chosen, [chosen])
    return chosen


def pick_many(
    label: str,
    key: str,
    options: Sequence[str],
    *,
    default: Sequence[str] | None = None,
    show: Callable[[str], str] = str,
    container: Any = st,
) -> list[str]:
    """Any number of ``options``; ``default`` None takes all. What a link names and is not here is said and left out."""
    offered = list(options)
    name = _widget(key)
    arrived = _arrived(key)
    if arrived is not None:
        arrived = [value for value in arrived if value]  # an empty parameter says "none picked"
        gone = [value for value in arrived if value not in offered]
        if gone:
            st.warning(
                f"The link asks for {label.lower()} {', '.join(f'“{plain(g)}”' for g in gone)}, which is not here."
            )
    remembered = st.session_state.get(name, _memory().get(key))
    wanted = arrived if arrived is not None else remembered
    kept = None if wanted is None else [value for value in wanted if value in offered]
    if kept is None or (wanted and not kept):
        kept = offered if default is None else [value for value in default if value in offered]
    st.session_state[name] = kept
    container.multiselect(label, offered, key=name, format_func=show)
    chosen = list(st.session_state[name])
    _remember(key, chosen, chosen or [""])
    return chosen


def entry(label: str, key: str, *, placeholder: str, help: str | None = None, container: Any = st) -> str:
    """A line of text; empty where nothing was entered."""
    name = _widget(key)
    arrived = _arrived(key)
    st.session_state[name] = arrived[0] if arrived else st.session_state.get(name, _memory().get(key, ""))
    container.text_input(label, key=name, placeholder=placeholder, help=help)
    entered = str(st.session_state[name]).strip()
    _remember(key, entered, [entered])
    return entered


def switch(label: str, key: str, *, default: bool, help: str | None = None, container: Any = st) -> bool:
    """On or off, "1" or "0" in the address."""
    name = _widget(key)
    arrived = _arrived(key)
    wanted = arrived[0] == "1" if arrived else st.session_state.get(name, _memory().get(key, default))
    st.session_state[name] = bool(wanted)
    container.toggle(label, key=name, help=help)
    chosen = bool(st.session_state[name])
    _remember(key, chosen, ["1" if chosen else "0"])
    return chosen


def text(key: str, default: str = "") -> str:
    """A text that came with the address, or the one kept last; ``keep_text`` changes it."""
    arrived = _arrived(key)
    value = arrived[0] if arrived else _memory().get(key, default)
    _remember(key, value, [value])
    return value


def keep_text(key: str, value: str) -> None:
    """Change a text for the user; takes effect at the next drawing (for callbacks)."""
    _memory()[key] = value


def set_choice(key: str, value: str) -> None:
    """Choose for the user; takes effect at the next drawing (for callbacks)."""
    st.session_state[_widget(key)] = value


@contextlib.contextmanager
def address() -> Generator[None]:
    """Around one drawing of a page: at its end, what was chosen in it becomes the address.

    Written once, since the browser makes every change of the address a step of its history.
    """
    st.session_state[_CHOSEN] = {}
    yield
    chosen = st.session_state[_CHOSEN]
    if {key: st.query_params.get_all(key) for key in st.query_params} != chosen:
        st.query_params.from_dict(chosen)
    st.session_state[_WRITTEN] = chosen


def _widget(key: str) -> str:
    return f"choice {key}"


def _memory() -> dict[str, Any]:
    return st.session_state.setdefault(_MEMORY, {})


def _arrived(key: str) -> list[str] | None:
    """The address's values when they are not what this session wrote there itself."""
    if key not in st.query_params:
        return None
    values = st.query_params.get_all(key)
    return None if st.session_state.get(_WRITTEN, {}).get(key) == values else values


def _remember(key: str, value: Any, in_address: list[str]) -> None:
    _memory()[key] = value
    st.session_state[_CHOSEN][key] = in_address
