"""Live progress of a study, read from the runs' folders: the same facts that the results are made of."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from evaluation.statistics import wilson_interval
from flows.prepare import PreparedRun
from training.spec import RolloutTokensBudget

POLL_SECONDS = 0.5


@dataclass
class RunWatcher:
    """What a run has reached, from the new lines of its spools."""

    run: PreparedRun
    update: int = 0
    spent: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    evaluated: int = 0
    """The update that the scores are of; training may be further."""
    parts: dict[str, Counter[str]] = field(default_factory=dict)
    """Counts so far of an evaluation that has not ended, by benchmark."""
    _offsets: dict[Path, int] = field(default_factory=dict)
    _evaluations: set[str] = field(default_factory=set)
    _parts: set[str] = field(default_factory=set)

    def poll(self) -> bool:
        """Read what is new; True if an evaluation was completed."""
        for spool in (self.run.folder.path / "spool").glob("*.jsonl"):
            self._read(spool)
        fresh = False
        for file in sorted((self.run.folder.path / "evaluations").glob("*.json"), key=lambda file: int(file.stem)):
            if file.stem not in self._evaluations:
                self._evaluations.add(file.stem)
                counts = json.loads(file.read_text())["benchmarks"]
                self.scores = {name: _accuracy(**count) for name, count in counts.items()}
                self.evaluated = int(file.stem)
                self.parts = {}
                fresh = True
        return self._poll_parts() or fresh

    def _poll_parts(self) -> bool:
        """Read the parts recorded since; True if there are any of an evaluation still under way."""
        fresh = False
        for file in sorted((self.run.folder.path / "evaluations" / "parts").glob("*.json")):
            update, _, rest = file.stem.partition("-")
            if file.stem in self._parts:
                continue
            self._parts.add(file.stem)
            if update not in self._evaluations:
                counts = json.loads(file.read_text())
                del counts["seconds"]
                self.parts.setdefault(rest.rpartition("-")[0], Counter()).update(counts)
                fresh = True
        return fresh

    def _read(self, spool: Path) -> None:
        with spool.open("rb") as lines:
            lines.seek(self._offsets.get(spool, 0))
            block = lines.read()
        whole = block[: block.rfind(b"\n") + 1]
        self._offsets[spool] = self._offsets.get(spool, 0) + len(whole)
        for line in whole.splitlines():
            if b'"kind":"step"' not in line and b'"kind": "step"' not in line:
                continue
            data = json.loads(line)["data"]
            if data["update"] > self.update:
                self.update = data["update"]
                self.spent = data["cost"].get("rollout_tokens", 0) + data["cost"].get("reference_tokens", 0)

    @property
    def fraction(self) -> float:
        """Share of the budget spent."""
        if self.run.folder.finished():
            return 1.0
        budget = self.run.cell.spec.budget
        if isinstance(budget, RolloutTokensBudget):
            return min(self.spent / budget.tokens, 1.0)
        return self.update / budget.updates if budget.updates else 0.0

    @property
    def name(self) -> str:
        return f"{self.run.cell.label}, seed {self.run.cell.seed}"

    @property
    def state(self) -> str:
        if self.parts:
            return ", ".join(f"{name} {_estimate(counts)}" for name, counts in self.parts.items())
        scores = ", ".join(f"{name} {score:.3f}" for name, score in self.scores.items())
        return f"update {self.evaluated:>4}  {scores}"


def _accuracy(problems: int, answers: int, passed: int, not_scored: int) -> float:
    scored = answers - not_scored
    return passed / scored if scored else math.nan


def _estimate(counts: Mapping[str, int]) -> str:
    """What the answers so far say, with the wider half of Wilson's interval over them."""
    scored = counts["answers"] - counts["not_scored"]
    interval = wilson_interval(counts["passed"], scored) if scored else None
    if interval is None:
        return f"no answer scored of {counts['answers']}"
    share = counts["passed"] / scored
    spread = max(interval.high - share, share - interval.low)
    return f"{share:.3f} ± {spread:.3f} after {counts['answers']} answers to {counts['problems']} problems"


@contextlib.contextmanager
def watch_runs(runs: list[PreparedRun], console: Console) -> Generator[None]:
    """Show the runs until the block ends: bars on a terminal, one line an evaluation elsewhere."""
    watchers = [RunWatcher(run) for run in runs]
    stop = threading.Event()
    if console.is_terminal:
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        bars = {
            watcher.run.run_id: progress.add_task(watcher.name, total=1.0, state="queued", start=False)
            for watcher in watchers
        }
        with progress:
            thread = threading.Thread(target=_follow, args=(stop, lambda: _draw(watchers, progress, bars)), daemon=True)
            with _running(thread, stop):
                yield
            _draw(watchers, progress, bars)
    else:
        thread = threading.Thread(target=_follow, args=(stop, lambda: _print(watchers, console)), daemon=True)
        with _running(thread, stop):
            yield
        _print(watchers, console)


@contextlib.contextmanager
def _running(thread: threading.Thread, stop: threading.Event) -> Generator[None]:
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _follow(stop: threading.Event, show: object) -> None:
    assert callable(show)
    while not stop.wait(POLL_SECONDS):
        show()


def _draw(watchers: list[RunWatcher], progress: Progress, bars: dict[str, TaskID]) -> None:
    for watcher in watchers:
        watcher.poll()
        bar = bars[watcher.run.run_id]
        if watcher.update or watcher.scores or watcher.parts:
            progress.start_task(bar)
            progress.update(bar, completed=watcher.fraction, state=watcher.state)
        if watcher.run.folder.finished():
            progress.update(bar, completed=1.0)
            progress.stop_task(bar)


def _print(watchers: list[RunWatcher], console: Console) -> None:
    for watcher in watchers:
        if watcher.poll():
            console.print(f"{watcher.name}: {watcher.state}", highlight=False, markup=False)
