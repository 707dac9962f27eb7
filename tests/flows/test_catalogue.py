"""Square brackets in texts of users and of papers are printed as they are, and never read as markup."""

from __future__ import annotations

import io

from rich.console import Console

from flows.catalogue import table_of
from flows.method_pages import describe_method
from training.methods import METHODS


def printed(*parts: object) -> str:
    output = io.StringIO()
    console = Console(file=output, width=200)
    for part in parts:
        console.print(part)
    return output.getvalue()


def test_equations_keep_their_brackets() -> None:
    assert "[log p_T(v) − log p_S(v)]" in printed(*describe_method(METHODS["opsd"]))


def test_cells_keep_their_brackets() -> None:
    assert "[/INST] [red]x[/red]" in printed(table_of([{"answer": "[/INST] [red]x[/red]"}]))
