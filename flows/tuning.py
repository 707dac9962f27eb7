"""The choice of settings: a pure function of a row's trials, and what the trials' folders say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

State = Literal["done", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One seed of a trial."""

    run_id: str
    seed: int
    state: State
    counts: tuple[tuple[int, int], ...] = ()
    """(right answers, scored answers) of each benchmark at the last evaluation; empty unless done."""

    def accuracy(self) -> Fraction | None:
        """Mean over benchmarks; None where one has no answer that could be scored, or the run is not done."""
        if not self.counts or any(scored == 0 for _, scored in self.counts):
            return None
        return sum((Fraction(right, scored) for right, scored in self.counts), Fraction(0)) / len(self.counts)


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of values that was tried for a row of the table."""

    values: Mapping[str, Any]
    runs: tuple[TrialRun, ...]

    @property
    def state(self) -> State:
        """failed if any seed failed: a mean over the seeds that got through would flatter the values."""
        states = {run.state for run in self.runs}
        return "missing" if "missing" in states else "failed" if "failed" in states else "done"

    def score(self) -> Fraction | None:
        """Mean over seeds of the accuracy; None unless every seed is done and has one."""
        accuracies = [run.accuracy() for run in self.runs]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        return sum(known, Fraction(0)) / len(known) if known and len(known) == len(accuracies) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a row of the table, with everything it was chosen from."""

    values: dict[str, Any]
    score: float
    chosen: tuple[str, ...]
    """Runs of the trial that was chosen."""
    trials: tuple[Trial, ...]

    def to_record(self) -> dict[str, Any]:
        """Plain values for the store."""
        return {
            "values": self.values,
            "score": self.score,
            "chosen": [*self.chosen],
            "trials": [
                {
                    "values": dict(trial.values),
                    "state": trial.state,
                    "score": None if (score := trial.score()) is None else float(score),
                    "runs": [run.run_id for run in trial.runs],
                }
                for trial in self.trials
            ],
        }


class NothingToChooseError(ValueError):
    """Every trial of a row failed, or none has an answer that could be scored."""


def choose(label: str, trials: Sequence[Trial]) -> Choice | None:
    """The best trial of one row; None while one of them is missing.

    The highest score wins; of equal scores (compared as fractions) the smaller values, axis by axis in the order of
    the plan. Values that are not numbers are ordered as the plan lists them. A failed trial loses against any with a
    score. Raises NothingToChooseError when no trial has one.
    """
    if any(trial.state == "missing" for trial in trials):
        return None
    scored = [(trial, score) for trial in trials if (score := trial.score()) is not None]
    if not scored:
        failed = sum(trial.state == "failed" for trial in trials)
        rest = "" if failed == len(trials) else f", and of {len(trials) - failed} no answer could be scored"
        raise NothingToChooseError(
            f"{label}: {failed} of {len(trials)} tuning trials failed{rest}, so nothing can be chosen: mend what they "
            "failed of, or give tuning.axes other values"
        )
    ranks = _ranks(trials)
    best, score = min(scored, key=lambda pair: (-pair[1], [ranks[path][repr(pair[0].values[path])] for path in ranks]))
    return Choice(dict(best.values), float(score), tuple(run.run_id for run in best.runs), tuple(trials))


def _ranks(trials: Iterable[Trial]) -> dict[str, dict[str, int]]:
    """Path -> value (as its repr) -> its place from the smallest."""
    listed: dict[str, list[Any]] = {}
    for trial in trials:
        for path, value in trial.values.items():
            if repr(value) not in map(repr, listed.setdefault(path, [])):
                listed[path].append(value)
    ranks = {}
    for path, values in listed.items():
        are_numbers = all(isinstance(value, int | float) for value in values)
        ranks[path] = {repr(value): rank for rank, value in enumerate(sorted(values) if are_numbers else values)}
    return ranks


# --- folders -------------------------------------------------------------------------------------------------------


def read_trial_run(path: Path, seed: int, gave_up: Callable[[Path], bool]) -> TrialRun:
    """What the folder of a trial's run says; ``gave_up`` decides whether an unfinished one counts as failed."""
    if not (path / "finished.json").exists():
        return TrialRun(path.name, seed, "failed" if gave_up(path) else "missing")
    last = max((path / "evaluations").glob("*.json"), key=lambda file: int(file.stem))
    counted = json.loads(last.read_text())["benchmarks"]
    counts = tuple((count["passed"], count["answers"] - count["not_scored"]) for count in counted.values())
    return TrialRun(path.name, seed, "done", counts)


def failed_before(path: Path) -> bool:
    """Whether the last thing that the driver wrote of a run is that it failed."""
    last: tuple[int, str] = (-1, "")
    for spool in (path / "spool").glob("*.jsonl"):
        with spool.open("rb") as lines:
            for line in lines:
                if b'"role":"driver"' not in line.replace(b'": ', b'":'):
                    break  # a spool has one writer; those of trainers are long
                if not line.endswith(b"\n"):
                    continue
                fact = json.loads(line)
                if fact["kind"] == "run_event":
                    last = max(last, (fact["data"]["sequence"], fact["data"]["status"]))
    return last[1] == "failed"
