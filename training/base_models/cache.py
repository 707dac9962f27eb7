"""Models made on first use: one maker at a time, and a folder is either complete or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Report = Callable[[int, int, str], None]
"""(steps done, steps in all, what to show beside them)."""


def make_once(folder: Path, title: str, make: Callable[[Path, Report], object]) -> Path:
    """``folder``, made by ``make(temporary folder, report)`` unless it is there already.

    A second process waits for the first one's lock and then finds the folder. The folder appears by one rename, so a
    killed maker leaves nothing that looks complete; its temporary folder is removed by the next maker. Progress goes
    to stderr.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():
            return folder
        for abandoned in folder.parent.glob(f"{folder.name}.making-*"):
            shutil.rmtree(abandoned)
        unfinished = folder.with_name(f"{folder.name}.making-{os.getpid()}")
        unfinished.mkdir()
        with_progress_bar(title, lambda report: make(unfinished, report))
        unfinished.replace(folder)
    return folder


def with_progress_bar(title: str, work: Callable[[Report], object]) -> None:
    """Runs ``work(report)`` under a progress bar on stderr, with transformers' own bars off."""
    from transformers.utils import logging

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figure]}"),
    )
    showed_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(title, total=None, figure="")

            def report(done: int, total: int, figure: str) -> None:
                progress.update(task, completed=done, total=total, figure=figure)

            work(report)
    finally:
        if showed_bars:
            logging.enable_progress_bar()
