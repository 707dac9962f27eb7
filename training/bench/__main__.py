"""The command line of the bench of the head."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import torch
from rich.console import Console

from training.bench.losses import LOSSES
from training.bench.measure import measure, rows, table
from training.bench.paths import Size, absent_peers

PIPE_WIDTH = 120
"""Columns of the tables where they are not printed to a terminal."""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m training.bench", description="Time and memory of the head.")
    options.add_argument("--json", type=Path, help="also write the rows here")
    options.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options.add_argument(
        "--tokens", type=int, nargs="+", default=[512, 1024], help="forward_kl only; others take the first"
    )
    options.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    options.add_argument("--hidden", type=int, default=1024)
    options.add_argument("--vocabulary", type=int, default=151_936)
    options.add_argument("--chunk", type=int, default=128)
    options.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=2)
    options.add_argument("--measure", nargs=2, metavar=("PATH", "SIZE"), help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.measure is not None:
        path, size = given.measure
        print(json.dumps(measure(path, Size(**json.loads(size)))))
        return
    if given.quick:
        given.tokens, given.hidden, given.vocabulary, given.chunk = [128], 64, 8192, 16
    sizes = [
        Size(tokens, given.hidden, given.vocabulary, given.chunk, dtype, given.threads, given.repeats, loss)
        for dtype in given.dtypes
        for loss in given.losses
        for tokens in (given.tokens if loss == "forward_kl" else given.tokens[:1])
    ]
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for peer in absent_peers():
        console.print(f"not measured: {peer} is not installed (pip install {peer})")
    found = []
    for size in sizes:
        found += (measured := rows(size))
        console.print(table(measured))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps({"machine": platform.platform(), "torch": torch.__version__, "rows": found}))


if __name__ == "__main__":
    main()
