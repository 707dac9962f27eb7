"""`stillroom evaluate`: a plan without cells, made from command-line options, and its numbers afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.finding import unknown
from flows.expansion import BASE_SEED
from flows.plan import parse_plan
from flows.plan_spec import Plan, PlanError
from flows.settings import Settings

if TYPE_CHECKING:
    from evaluation.results.summary import Summary

LONGEST_NAME = 60
"""Characters of a plan's name that come from the model and the benchmarks."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says; None takes the benchmark's protocol, or greedy decoding where it has none."""

    samples: int | None = None
    split: str = "test"
    problems: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    system_prompt: str | None = None
    thinking: bool | None = None
    precision: str | None = None
    seed: int | None = None


def checkpoint_model(settings: Settings, prefix: str, update: int | None) -> tuple[Path, str | None]:
    """A run's checkpoint as a model of its own, in the cache, and the system prompt it was trained under.

    An adapter is merged. ``update`` None takes the last checkpoint. Raises UsageError.
    """
    from flows.exporting import export_model, find_checkpoint, find_folder

    folder = find_folder(settings.store, prefix)
    stored = folder.read()
    _, at, _ = find_checkpoint(folder, stored, update)
    model = settings.cache / "checkpoints" / f"{folder.run_id}-update-{at}"
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        export_model(settings, folder.run_id, model, at)
    return model, stored.spec.model.system_prompt


def evaluation_plan(model: str, benchmarks: Sequence[str], asked: Asked) -> Plan:
    """The plan ``evaluate-<model>-<benchmarks>``: the model as it is, on the benchmarks.

    Several benchmarks share one sampling: where their protocols differ it has to be given. Raises PlanError.
    """
    for name in benchmarks:
        if name not in BENCHMARKS:
            raise PlanError(f"--benchmark: {unknown(name)}")
    if not benchmarks:
        raise PlanError("--benchmark: name at least one (see `stillroom benchmarks`)")
    samples, temperature, top_p = _sampling(benchmarks, asked)
    if samples > 1 and temperature == 0:
        raise PlanError(f"--n {samples} at temperature 0 is the same answer {samples} times: give --temperature")
    if asked.seed is not None and asked.seed < 0:
        raise PlanError(f"--seed {asked.seed}: a seed is 0 or more")
    longest = max(BENCHMARKS[name].max_new_tokens for name in benchmarks)
    content: dict[str, Any] = {
        "name": _name(model, benchmarks),
        "title": f"{model} on {', '.join(BENCHMARKS[name].title for name in benchmarks)}",
        "model": {"name": model, "system_prompt": asked.system_prompt},
        "data": benchmarks[0],
        "budget": {"updates": 0},
        "evaluation": {
            "benchmarks": list(benchmarks),
            "split": asked.split,
            "problems": asked.problems,
            "samples": samples,
            "sampling": {
                "max_new_tokens": asked.max_new_tokens or longest,
                "temperature": temperature,
                "top_p": top_p,
            },
            "thinking": asked.thinking,
            "every_updates": 1,
        },
        "seeds": [BASE_SEED if asked.seed is None else asked.seed],
        "cells": [],
    }
    if asked.precision is not None:
        content["compute"] = {"precision": asked.precision}
    return parse_plan(content, "stillroom evaluate")


def _sampling(benchmarks: Sequence[str], asked: Asked) -> tuple[int, float, float]:
    """Samples, temperature and top-p: what is given, else the benchmarks' one protocol, else one greedy answer."""
    protocols = {BENCHMARKS[name].protocol for name in benchmarks}
    if len(protocols) > 1 and None in (asked.samples, asked.temperature):
        raise PlanError(
            f"{', '.join(benchmarks)} are sampled differently in their papers: give --n and --temperature, or evaluate "
            "one at a time"
        )
    protocol = protocols.pop()
    samples = asked.samples or (protocol.samples if protocol else 1)
    temperature, top_p = asked.temperature, asked.top_p
    if temperature is None:
        temperature = 0.0 if samples == 1 else protocol.temperature if protocol else 1.0
    if top_p is None:
        top_p = protocol.top_p if protocol and samples > 1 else 1.0
    return samples, temperature, top_p


def _name(model: str, benchmarks: Sequence[str]) -> str:
    text = f"{Path(model).name}-{'-'.join(benchmarks)}".lower()
    return "evaluate-" + re.sub(r"[^a-z0-9_-]+", "-", text).strip("-")[:LONGEST_NAME]


def print_summaries(store: Path, run_id: str, as_json: bool, console: Console) -> None:
    """What the evaluated model scored, benchmark by benchmark."""
    from evaluation.results.snapshot import open_snapshot
    from evaluation.results.summary import RULE, summarise
    from flows.report import refusals

    with refusals(), open_snapshot(store) as snapshot:
        summaries = summarise(snapshot, run_id)
    if as_json:
        print(json.dumps([summary.to_dict() for summary in summaries], indent=2))
        return
    for summary in summaries:
        title = f"{summary.benchmark}, {summary.split} split: {summary.problems} problems, {summary.answers} answers"
        table = Table("measure", Column("value", justify="right"), title=Text(title))
        for name, value in _measures(summary):
            table.add_row(Text(name), Text(value))
        console.print(table)
    console.print(f"{RULE}. Run {run_id}.", highlight=False, markup=False)


def _measures(summary: Summary) -> list[tuple[str, str]]:
    share = "–" if summary.accuracy is None else f"{100 * summary.accuracy:.1f} %"
    if summary.interval is not None:
        share += f" [{100 * summary.interval.low:.1f}, {100 * summary.interval.high:.1f}]"
    several = summary.samples > 1
    rows = [(f"avg@{summary.samples}" if several else "accuracy", share)]
    if several:
        rows += [(f"pass@{k}", _percent(value)) for k, value in summary.pass_at.items() if k > 1]
        rows += [(f"pass^{k}", _percent(value)) for k, value in summary.pass_hat.items() if k > 1]
        rows.append((f"maj@{summary.samples}", _percent(summary.majority)))
    rows.append(("lenient accuracy", _percent(summary.lenient_accuracy)))
    rows.append(("strict format kept", _percent(summary.format_rate)))
    rows.append(("cut off at the length limit", _percent(summary.truncated_rate)))
    rows.append(("not scored", f"{summary.unscored} of {summary.answers} answers"))
    rows.append(("mean answer", f"{summary.completion_tokens:.1f} tokens"))
    return rows


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
