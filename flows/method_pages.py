"""One method in full, for the terminal (no torch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flows.method_fields import at_path, changed, field_rows, short
from training.method import Method
from training.methods import PRESETS


def describe_method(method: Method) -> list[Any]:
    """Equation, sources, every field with value and meaning, ablations, presets, open choices, code differences."""
    fields = (
        (row.path, row.value, f"{row.meaning} [{', '.join(row.choices)}]" if row.choices else row.meaning)
        for row in field_rows(method)
    )
    parts: list[Any] = [
        Panel(Text(method.equation), title=Text(f"{method.title}  ({method.status})")),
        Text(method.summary),
        Text(f"Source: {source(method)}"),
        _table("Settings: each is an ablation, --set FIELD=VALUE", ("field", "value", "meaning"), fields),
    ]
    if method.ablations:
        ablations = ((path, _before(method, path), other) for path, other in _alternatives(method))
        parts.append(_table("Ablations", ("field", "value", "instead"), ablations))
    for name, changes in PRESETS[method.key].items():
        rows = ((path, _before(method, path), new) for path, new in changed(method, changes).items())
        parts.append(_table(f"Preset {name}: changes", ("field", "value", "becomes"), rows))
    for title, notes in (("Left open by the paper", method.open_choices), ("Code and paper", method.code_differences)):
        if notes:
            parts.append(_table(title, ("", ""), notes.items(), header=False))
    return parts


def source(method: Method) -> str:
    """Where the method comes from, with its address."""
    if method.paper is None:
        return "none of its own; a yardstick of the field"
    return f"{method.paper}, https://arxiv.org/abs/{method.paper.removeprefix('arXiv:')}"


def _before(method: Method, path: str) -> str:
    value = at_path(method, path)
    return "…" if len(text := short(value)) > LONGEST else text


LONGEST = 60
"""Longer values are not repeated beside what takes their place."""


def _alternatives(method: Method) -> Iterable[tuple[str, str]]:
    for path, values in method.ablations.items():
        for value in values:
            yield path, changed(method, {path: value})[path]


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, header: bool = True) -> Table:
    table = Table(title=title, title_justify="left", show_header=header)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
