"""What a page shows, as AppTest gives it; and what this process holds open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.testing.v1 import AppTest


def table(app: AppTest, *columns: str) -> pd.DataFrame:
    """The first table on the page that has these columns."""
    for element in app.dataframe:
        if set(columns) <= set(element.value.columns):
            return element.value
    raise AssertionError(f"no table with {columns}: {[list(e.value.columns) for e in app.dataframe]}")


def value(rows: pd.DataFrame, row: Any, column: str) -> Any:
    """One cell."""
    return rows.loc[row, column]


def texts(app: AppTest) -> str:
    """All that the page says outside tables."""
    kinds = (app.title, app.subheader, app.markdown, app.caption, app.info, app.warning, app.error, app.success)
    return "\n".join(element.value for kind in kinds for element in kind)


def link_labels(app: AppTest) -> list[str]:
    """The links to other pages, which AppTest has no class for."""
    return [element.proto.label for element in app.get("page_link")]


def open_databases(store: Path) -> list[str]:
    """The store's files that this process has open."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith(str(store.resolve())) and ".duckdb" in target:
            held.append(target)
    return held
