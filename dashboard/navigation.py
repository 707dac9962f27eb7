"""The pages, their addresses, and links between them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st


@dataclass(frozen=True, slots=True)
class Entry:
    """One page: its title, its icon, and the module of ``dashboard.views`` that draws it."""

    title: str
    icon: str
    module: str


PAGES = {
    "overview": Entry("Overview", ":material/home:", "overview"),
    "leaderboard": Entry("Leaderboard", ":material/leaderboard:", "leaderboard"),
    "ablations": Entry("Ablations", ":material/grid_on:", "ablations"),
    "curves": Entry("Curves", ":material/show_chart:", "curves"),
    "run": Entry("Run", ":material/science:", "run"),
    "traces": Entry("Traces", ":material/format_color_text:", "traces"),
    "sql": Entry("SQL", ":material/database:", "sql"),
}
"""Address -> page, in the order of the menu; the first one opens."""


def pages() -> list[st.Page]:
    """The menu."""
    return [_page(address) for address in PAGES]


def _page(address: str) -> st.Page:
    entry = PAGES[address]
    first = address == next(iter(PAGES))
    return st.Page(_draw(entry.module), title=entry.title, icon=entry.icon, url_path=address, default=first)


def _draw(module: str) -> Callable[[], None]:
    def draw() -> None:
        importlib.import_module(f"dashboard.views.{module}").page()

    # Pages are told apart by address and by this name.
    draw.__name__ = draw.__qualname__ = module
    return draw


def link(address: str, label: str, *, container: Any = st, **parameters: str) -> None:
    """A link to another page, opened in place, with what it should show."""
    container.page_link(_page(address), label=label, icon=PAGES[address].icon, query_params=parameters)


def url(address: str, **parameters: str) -> str:
    """The same as a relative address, for cells of a table."""
    from urllib.parse import urlencode

    return f"{address}?{urlencode(parameters)}"
