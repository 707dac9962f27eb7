"""The application that the commands belong to, and what they share."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

app = App(
    name="stillroom",
    help="The laboratory for on-policy self-distillation of language models.",
    version=lambda: version("stillroom"),
    version_flags=["--version"],
    exit_on_error=False,
    print_error=False,
)

Store = Annotated[Path | None, Parameter(help="Folder of runs and results (default: $STILLROOM_STORE or ./store).")]

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]

PIPE_WIDTH = 120
"""Columns of tables that are not printed to a terminal."""

console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_content(content: Any, as_json: bool) -> None:
    """A table, a text or several of them; or JSON."""
    if as_json:
        print(json.dumps(content, indent=2, default=str))
    elif isinstance(content, Table | str):
        console.print(content, highlight=False)
    else:
        for part in content:
            console.print(part, highlight=False)
