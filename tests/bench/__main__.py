"""``python -m tests.bench [--json PATH] [--quick]``: benchmarks that print no table of their own, as tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import store


def main(arguments: list[str] | None = None) -> None:
    """Print the table; keep it as JSON if asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    rows = store.rows(options.quick)
    table = Table(*rows[0], title="store: spool to published snapshot", title_justify="left")
    for row in rows:
        table.add_row(*(f"{value:,.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    if options.json:
        machine = {"machine": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
