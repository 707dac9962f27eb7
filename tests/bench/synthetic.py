"""Synthetic stores of any size, written through the real spools: for benchmarks and for tests of pages and commands.

Studies of several methods on one benchmark, each with an untrained model, an ablation axis and seeds; metrics at
irregular updates; NaN; failed, running and partial runs. The same arguments give the same facts.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.results.ingest import ingest
from evaluation.results.records import (
    AnswerRecord,
    EvaluationRecord,
    GradeRecord,
    PlanCell,
    ProblemRecord,
    RolloutRecord,
    RunEvent,
    RunRecord,
    StepRecord,
)
from evaluation.results.spool import Spool, write_samples
from training.methods import METHODS

START = 1_790_000_000.0
"""When the first run was created (seconds since 1970)."""
LEARNING_RATES = (1e-5, 1e-4)
METHOD_KEYS = ("sft", "grpo", "opsd", "usd", "sdft", "dapo")
METRICS = (
    "loss", "grad_norm", "entropy/student", "entropy/teacher", "divergence/distill/forward_kl_exact", "pass_rate",
    "completion_tokens_mean", "truncated_fraction", "unscored_rate", "reward_mean", "learning_rate",
    "controller/usd/share",
)  # fmt: skip
"""Names that the trainer uses; further metrics are called ``probe/<number>``."""
PERIODS = (1, 1, 1, 2, 3, 5, 10)
"""Metric i is recorded at the updates that PERIODS[i mod 7] divides."""
NAN_RATE = 0.001
FAILED_EVERY, RUNNING_EVERY, PARTIAL_EVERY = 17, 23, 29
"""Every so many trained runs of the store one failed half-way, one still runs, one lacks answers of its last
evaluation."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a synthetic store; every number in it follows from these."""

    runs: int = 24
    seeds: int = 3
    methods: int = 4
    updates: int = 40
    metrics: int = 12
    evaluations: int = 3
    problems: int = 20
    samples: int = 2
    rollouts: int = 2
    """Rollouts recorded an update."""
    completion_bytes: int = 200
    """Length of a stored answer; 0 writes no samples files."""
    seed: int = 0


LARGE = Shape(
    runs=1_000, methods=6, updates=250, metrics=200, evaluations=4, problems=250, rollouts=4, completion_bytes=0
)
"""A thousand runs with 20 million metric values and 2 million answers."""


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """One planned run: what a cell of a plan says, and what becomes of it."""

    run_id: str
    plan: str
    position: int
    label: str
    method: str
    axes: dict[str, Any]
    seed: int
    base_run_id: str | None
    status: str
    partial: bool
    number: int


def synthetic_store(
    folder: Path, *, runs: int = 24, ingested: bool = True, processes: int = 1, **sizes: int
) -> list[SyntheticRun]:
    """Write a store of ``runs`` runs into ``folder``, ingest and publish it; returns its runs.

    ``sizes`` are further fields of Shape. The default takes well under two seconds.
    """
    shape = Shape(runs=runs, **sizes)
    planned = plan_runs(shape)
    if processes == 1:
        for run in planned:
            write_run(folder, shape, run)
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
            list(pool.map(partial(write_run, folder, shape), planned, chunksize=8))
    if ingested:
        ingest(folder)
    return planned


def plan_runs(shape: Shape) -> list[SyntheticRun]:
    """The runs of all plans: an untrained model, then each method at each learning rate and seed, plan after plan."""
    found: list[SyntheticRun] = []
    for plan_number in range(shape.runs):  # at most one plan a run
        plan = f"study-{plan_number + 1}"
        base = f"{plan}-base"
        found.append(SyntheticRun(base, plan, 0, "Base", "base", {}, 0, None, "done", False, len(found)))
        for position, key in enumerate(METHOD_KEYS[: shape.methods], start=1):
            for rate in LEARNING_RATES:
                for seed in range(shape.seeds):
                    found.append(_trained(plan, base, position, key, rate, seed, number=len(found)))
        if len(found) >= shape.runs:
            break
    return found[: shape.runs]


def _trained(plan: str, base: str, position: int, key: str, rate: float, seed: int, number: int) -> SyntheticRun:
    status = "done"
    if number % FAILED_EVERY == 5:
        status = "failed"
    elif number % RUNNING_EVERY == 7:
        status = "running"
    return SyntheticRun(
        run_id=f"{plan}-{key}-{rate:g}-s{seed}",
        plan=plan,
        position=position,
        label=METHODS[key].title,
        method=key,
        axes={"learning_rate": rate},
        seed=seed,
        base_run_id=base,
        status=status,
        partial=status == "done" and number % PARTIAL_EVERY == 11,
        number=number,
    )


def write_run(folder: Path, shape: Shape, run: SyntheticRun) -> None:
    """Everything one run leaves behind: spools of three processes, samples, ``spec.json`` and ``finished.json``."""
    run_dir = folder / "runs" / run.run_id
    rng = np.random.default_rng([shape.seed, run.number])
    share = {"done": 1.0, "failed": 0.5, "running": 0.75}[run.status]
    updates = 0 if run.method == "base" else int(shape.updates * share)
    with _spools(run_dir) as (driver, trainer, evaluator):
        _write_plan(driver, shape, run)
        if updates:
            _write_steps(trainer, shape, run, updates, rng)
        for number, update in enumerate(evaluated_updates(shape, run)):
            if update <= updates:
                _write_evaluation(evaluator, run_dir, shape, run, number, update)
    _write_files(run_dir, shape, run, updates)


@contextlib.contextmanager
def _spools(run_dir: Path) -> Generator[tuple[Spool, Spool, Spool]]:
    with (
        Spool(run_dir, role="driver", attempt=1) as driver,
        Spool(run_dir, role="trainer", attempt=1) as trainer,
        Spool(run_dir, role="evaluator", attempt=1) as evaluator,
    ):
        yield driver, trainer, evaluator


def evaluated_updates(shape: Shape, run: SyntheticRun) -> list[int]:
    """The updates after which the run is evaluated."""
    if run.method == "base":
        return [0]
    return [shape.updates * (number + 1) // shape.evaluations for number in range(shape.evaluations)]


def metric_names(shape: Shape) -> list[str]:
    """The metrics of every training run."""
    return [*METRICS, *(f"probe/{number}" for number in range(len(METRICS), shape.metrics))][: shape.metrics]


def metric_table(shape: Shape, updates: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, values [updates, metrics] (NaN where training gave NaN) and which of them are recorded."""
    names = metric_names(shape)
    progress = np.arange(1, updates + 1)[:, None] / shape.updates
    values = 1.5 - progress + 0.1 * rng.standard_normal((updates, len(names)))
    values[rng.random(values.shape) < NAN_RATE] = np.nan
    periods = np.array([PERIODS[index % len(PERIODS)] for index in range(len(names))])
    recorded = np.arange(1, updates + 1)[:, None] % periods == 0
    return names, values, recorded


def cost_at(update: int) -> dict[str, float]:
    """Cumulative cost after ``update`` updates."""
    return {
        "rollout_tokens": 1000 * update,
        "reference_tokens": 0,
        "teacher_tokens": 1500 * update,
        "auxiliary_tokens": 0,
        "trained_tokens": 900 * update,
        "flop": 1e12 * update,
        "wall_seconds": 0.5 * update,
        "gpu_seconds": 0.0,
    }


def _write_steps(trainer: Spool, shape: Shape, run: SyntheticRun, updates: int, rng: np.random.Generator) -> None:
    names, values, recorded = metric_table(shape, updates, rng)
    every = max(1, shape.updates // shape.evaluations)
    rewards = rng.random((updates, shape.rollouts))
    for row in range(updates):
        update = row + 1
        numbers, kept = values[row].tolist(), recorded[row].tolist()
        metrics: dict[str, float | None] = {
            name: None if math.isnan(value) else value
            for name, value, keep in zip(names, numbers, kept, strict=True)
            if keep
        }
        at = START + 60 * run.number + update
        trainer.append(StepRecord(run.run_id, update, row // every, metrics, cost_at(update), at))
        for index, reward in enumerate(rewards[row].tolist()):
            trainer.append(_rollout(run, update, index, reward))


def _rollout(run: SyntheticRun, update: int, index: int, reward: float) -> RolloutRecord:
    passed = reward < 0.4
    return RolloutRecord(
        run_id=run.run_id,
        update=update,
        index=index,
        problem_id=f"train-{(update * 7 + index) % 97}",
        weights_version=update - 1,
        prompt_tokens=40,
        completion_tokens=120 + index,
        truncated=reward > 0.97,
        verdict="pass" if passed else "fail",
        score=float(passed),
    )


def right_answers(shape: Shape, run: SyntheticRun, update: int) -> np.ndarray:
    """Which answers of an evaluation are right: [problems, samples]. Problems differ in difficulty, runs in skill."""
    difficulty = np.random.default_rng([shape.seed, 1]).normal(0.0, 1.5, shape.problems)
    skill = -0.8 + (run.position * 0.5 + 0.1 * run.seed) * update / shape.updates
    chance = 1 / (1 + np.exp(difficulty - skill))
    return (
        np.random.default_rng([shape.seed, 2, run.number, update]).random((shape.problems, shape.samples))
        < (chance[:, None])
    )


def _write_evaluation(spool: Spool, run_dir: Path, shape: Shape, run: SyntheticRun, number: int, update: int) -> None:
    right = right_answers(shape, run, update)
    samples = _write_texts(run_dir, shape, update, right)
    missing = run.partial and number == shape.evaluations - 1
    at = START + 60 * run.number + update + 0.5
    for p in range(shape.problems):
        prompt = f"Problem {p}: what is {p} + 1?"
        spool.append(ProblemRecord(run.run_id, "addition", "1", "test", f"p{p}", None, str(p + 1), prompt))
        for s in range(0 if missing and p == 0 else shape.samples):
            _write_answer(spool, run, update, p, s, bool(right[p, s]), samples, p * shape.samples + s)
    spool.append(
        EvaluationRecord(
            run.run_id, update, "addition", "test", shape.problems, shape.samples, cost_at(update), seconds=2.0, at=at
        )
    )


def _write_answer(
    spool: Spool, run: SyntheticRun, update: int, problem: int, sample: int, right: bool, file: str, row: int
) -> None:
    answer = AnswerRecord(
        run_id=run.run_id,
        update=update,
        benchmark="addition",
        split="test",
        problem_id=f"p{problem}",
        sample_index=sample,
        prompt_tokens=20,
        completion_tokens=100 + problem % 7,
        finish_reason="length" if problem % 19 == 3 else "stop",
        sample_file=file,
        sample_row=row,
    )
    spool.append(answer)
    scored = (problem + update) % 101 != 100
    verdict = ("pass" if right else "fail") if scored else "not_scored"
    spool.append(
        GradeRecord(
            run_id=run.run_id,
            answer_key=answer.key,
            grader="exact",
            version="1",
            verdict=verdict,
            score=float(right) if scored else None,
            extracted=str(problem + right) if scored else None,
            well_formed=scored,
            lenient=verdict,
            error=None if scored else "the grader timed out",
        )
    )


def _write_texts(run_dir: Path, shape: Shape, update: int, right: np.ndarray) -> str:
    name = f"{update:06d}-addition-test"
    if not shape.completion_bytes:
        return f"samples/answers-{name}.parquet"
    rows = [
        {
            "prompt": f"Problem {p}: what is {p} + 1?",
            "completion": (f"Adding 1 to {p}. " * shape.completion_bytes)[: shape.completion_bytes]
            + f"#{p + 1 if right[p, s] else p}",
            "token_ids": [p % 7, s, 3],
        }
        for p in range(shape.problems)
        for s in range(shape.samples)
    ]
    return write_samples(run_dir, "answers", name, rows)


def _write_plan(driver: Spool, shape: Shape, run: SyntheticRun) -> None:
    at = START + 60 * run.number
    driver.append(
        RunRecord(
            run_id=run.run_id,
            method=run.method,
            model="tiny-demo",
            seed=run.seed,
            spec=spec_of(shape, run),
            provenance=_provenance(run),
            created_at=at,
        )
    )
    driver.append(
        PlanCell(
            run_id=run.run_id,
            plan=run.plan,
            plan_hash="edition-1",
            position=run.position,
            label=run.label,
            is_control=False,
            base_run_id=run.base_run_id,
            overrides={f"phases.student.optimiser.{name}": value for name, value in run.axes.items()},
            axes=run.axes,
            tags=("synthetic",),
        )
    )
    steps = {"done": ("queued", "running", "done"), "running": ("queued", "running")}
    for sequence, status in enumerate(steps.get(run.status, ("queued", "running", "failed"))):
        error = "the trainer ran out of memory" if status == "failed" else None
        driver.append(RunEvent(run.run_id, sequence, status, at + (sequence if sequence < 2 else shape.updates), error))


def spec_of(shape: Shape, run: SyntheticRun) -> dict[str, Any]:
    """A run's specification: some sixty fields, those of the real method among them."""
    method = None if run.method == "base" else METHODS[run.method].model_dump(mode="json")
    return {
        "budget": {"kind": "updates", "updates": shape.updates},
        "data": {"train": "addition", "limit": None, "test": None, "validation": None},
        "evaluation": {"benchmarks": ["addition"], "problems": shape.problems, "samples": shape.samples},
        "method": method,
        "model": {"name": "tiny-demo", "system_prompt": None},
        "seed": run.seed,
        **run.axes,
    }


def _provenance(run: SyntheticRun) -> dict[str, Any]:
    return {
        "command": ["stillroom", "sweep", run.plan],
        "git_commit": "0" * 40,
        "git_dirty": False,
        "git_diff_hash": None,
        "host": f"host-{run.number % 3}",
        "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
        "python": "3.11.7",
    }


def _write_files(run_dir: Path, shape: Shape, run: SyntheticRun, updates: int) -> None:
    spec = {"run_id": run.run_id, "spec": spec_of(shape, run), "identity": {}, "cache": "", "benchmarks_root": None}
    (run_dir / "spec.json").write_text(json.dumps(spec))
    if run.status == "done":
        (run_dir / "finished.json").write_text(json.dumps({"updates": updates}))
