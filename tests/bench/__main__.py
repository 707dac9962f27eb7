"""``python -m tests.bench [--quick] [head] [store]``: print the tables and keep them in bench/<time>.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import head, store

PARTS = {"head": head.rows, "store": store.rows}


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(
            *(
                "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
                for value in row.values()
            )
        )
    return shown


def main(arguments: list[str] | None = None) -> Path:
    """Returns the file written."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--folder", type=Path, default=Path("bench"))
    options = parser.parse_args(arguments)
    console = Console()
    found = {}
    for part in options.parts or PARTS:
        found[part] = PARTS[part](options.quick)
        console.print(table(found[part]))
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / time.strftime("%Y%m%d-%H%M%S.json")
    machine = {"machine": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    file.write_text(json.dumps({**machine, "quick": options.quick, **found}, indent=1))
    console.print(f"written to {file}")
    return file


if __name__ == "__main__":
    main()
