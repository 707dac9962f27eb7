"""Small deterministic stores, written through the real Spool, for tests of everything that reads results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    tuning_plan,
)
from evaluation.results.spool import Spool, write_samples

START = 1_790_000_000.0
"""When the first run of every synthetic study was created (seconds since 1970)."""


@dataclass(frozen=True)
class Cell:
    """One row of the study: where its accuracy starts from the base's and where it ends."""

    label: str
    method: str
    final_accuracy: float
    is_control: bool = False
    axes: dict[str, object] = field(default_factory=dict)
    statuses: tuple[str, ...] = ("queued", "running", "done")
    tuning: dict[str, object] = field(default_factory=dict)


CELLS = (
    Cell("SFT", "sft", 0.9),
    Cell("GRPO", "grpo", 0.45),
    Cell("OPSD", "opsd", 0.8),
    Cell("OPSD, another problem's hint", "opsd", 0.02, is_control=True),
)


@dataclass(frozen=True)
class Study:
    """What ``write_study`` writes. Every number follows from these fields."""

    plan: str = "demo"
    plan_hash: str = "edition-1"
    cells: tuple[Cell, ...] = CELLS
    seeds: tuple[int, ...] = (0, 1, 2)
    updates: int = 20
    every: int = 10
    problems: int = 24
    clusters: int = 0
    """0 leaves the problems' cluster empty; otherwise problem i is in cluster i mod ``clusters``."""
    samples: int = 2
    benchmark: str = "addition"
    splits: tuple[str, ...] = ("test",)
    base_accuracy: float = 0.3
    unscored_rate: float = 0.0
    rollouts: int = 4
    """Rollouts an update that are recorded."""
    unscored_rollouts: int = 0
    """Rollouts of every update that the grader could not score."""
    entropies: tuple[float, float] | None = None
    """The student's entropy in the first and in the second half of the updates; None leaves the metric out."""
    infinite_divergences: int = 0
    """Updates, counted from the first, at which the divergence was not finite."""


def run_id(study: Study, cell: Cell, seed: int) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in f"{study.plan}-{cell.label}-{seed}".lower())
    return slug


def base_run_id(study: Study) -> str:
    return f"{study.plan}-base".lower()


def cost_at(study: Study, update: int) -> dict[str, float]:
    """Cumulative cost after ``update`` updates."""
    return {
        "rollout_tokens": update * 1000,
        "reference_tokens": 0,
        "teacher_tokens": update * 1500,
        "auxiliary_tokens": 0,
        "trained_tokens": update * 900,
        "flop": update * 1e9,
        "wall_seconds": update * 0.5,
        "gpu_seconds": 0.0,
    }


def write_base(store: Path, study: Study, *, attempt: int = 1) -> None:
    """The run of the untrained model: update 0 alone."""
    name = base_run_id(study)
    cell = Cell("Base", "base", study.base_accuracy)
    with Spool(store / "runs" / name, role="driver", attempt=attempt) as driver:
        _write_plan(driver, study, cell, name, seed=0, position=0, base=None)
    with Spool(store / "runs" / name, role="evaluator", attempt=attempt) as evaluator:
        write_evaluation(store, evaluator, study, name, update=0, accuracy=study.base_accuracy, seed=0)


def write_run(
    store: Path,
    study: Study,
    cell: Cell,
    seed: int,
    *,
    attempt: int = 1,
    updates: int | None = None,
    base: bool = True,
) -> str:
    """One training run up to ``updates`` (default: all): steps, rollouts, evaluations; returns its id."""
    name = run_id(study, cell, seed)
    position = 1 + study.cells.index(cell)
    with Spool(store / "runs" / name, role="driver", attempt=attempt) as driver:
        _write_plan(driver, study, cell, name, seed=seed, position=position, base=base_run_id(study) if base else None)
    rng = np.random.default_rng([seed, position])
    with (
        Spool(store / "runs" / name, role="trainer", attempt=attempt) as trainer,
        Spool(store / "runs" / name, role="evaluator", attempt=attempt) as evaluator,
    ):
        for update in range(1, (updates or study.updates) + 1):
            share = update / study.updates
            accuracy = study.base_accuracy + (cell.final_accuracy - study.base_accuracy) * share
            trainer.append(
                StepRecord(
                    run_id=name,
                    update=update,
                    segment=(update - 1) // study.every,
                    metrics={
                        "loss": float(2.0 - share + 0.01 * rng.standard_normal()),
                        "reward": accuracy,
                        **_trouble(study, update),
                    },
                    cost=cost_at(study, update),
                    at=START + update,
                )
            )
            _write_rollouts(trainer, study, name, update, rng)
            if update % study.every == 0:
                write_evaluation(store, evaluator, study, name, update=update, accuracy=accuracy, seed=seed)
    return name


def write_study(store: Path, study: Study | None = None, *, ingested: bool = True) -> Study:
    """Every run of the study, ingested and published unless told otherwise."""
    study = study or Study()
    write_base(store, study)
    for cell in study.cells:
        for seed in study.seeds:
            write_run(store, study, cell, seed)
    if ingested:
        ingest(store)
    return study


def write_tuned_study(store: Path, study: Study | None = None, **changes: Any) -> tuple[Study, Study]:
    """A study whose cell OPSD was tuned over three learning rates on two seeds, and the study of its trials."""
    study = study or Study()
    cells = tuple(
        Cell(f"OPSD, learning_rate={rate} (tuning)", "opsd", end, axes={"learning_rate": rate}, tuning={"of": "OPSD"})
        for rate, end in ((1e-5, 0.4), (2e-4, 0.8), (1e-3, 0.1))
    )
    trials = replace(
        study, plan=tuning_plan(study.plan), cells=cells, seeds=(100, 101), splits=("validation",), **changes
    )
    chosen = [run_id(trials, cells[1], seed) for seed in trials.seeds]
    record: dict[str, object] = {
        "values": {"learning_rate": 2e-4},
        "score": 0.8,
        "chosen": chosen,
        "trials": [],
        "like": None,
    }
    main = replace(
        study, cells=tuple(replace(cell, tuning=record) if cell.label == "OPSD" else cell for cell in study.cells)
    )
    for cell in trials.cells:
        for seed in trials.seeds:
            write_run(store, trials, cell, seed, base=False)
    write_study(store, main)
    return main, trials


def correct(study: Study, run: str, accuracy: float, update: int, seed: int) -> np.ndarray:
    """Which answers are right: [problems, samples] booleans, the same whenever asked."""
    key = [seed, update, *run.encode()]
    return np.random.default_rng(key).random((study.problems, study.samples)) < accuracy


def write_evaluation(
    store: Path, spool: Spool, study: Study, run: str, *, update: int, accuracy: float, seed: int
) -> None:
    """Problems, answers, grades and the closing record of one evaluation on each split of the study."""
    for split in study.splits:
        right = correct(study, run, accuracy, update, seed)
        unscored = np.random.default_rng([7, seed, update]).random(right.shape) < study.unscored_rate
        rows = [
            {"prompt": f"{p}+1", "completion": f"#{p + 1 if right[p, s] else 0}", "token_ids": [1, 2, 3]}
            for p in range(study.problems)
            for s in range(study.samples)
        ]
        samples = write_samples(store / "runs" / run, "answers", f"{update}-{study.benchmark}-{split}", rows)
        for p in range(study.problems):
            cluster = f"template-{p % study.clusters}" if study.clusters else None
            problem = ProblemRecord(run, study.benchmark, "1", split, f"p{p}", cluster, str(p + 1), f"{p}+1")
            spool.append(problem)
            for s in range(study.samples):
                answer = AnswerRecord(
                    run_id=run,
                    update=update,
                    benchmark=study.benchmark,
                    split=split,
                    problem_id=f"p{p}",
                    sample_index=s,
                    prompt_tokens=3,
                    completion_tokens=4 + s,
                    finish_reason="stop",
                    sample_file=samples,
                    sample_row=p * study.samples + s,
                )
                spool.append(answer)
                spool.append(_grade(answer, bool(right[p, s]), bool(unscored[p, s])))
        spool.append(
            EvaluationRecord(
                run_id=run,
                update=update,
                benchmark=study.benchmark,
                split=split,
                problems=study.problems,
                samples_per_problem=study.samples,
                cost=cost_at(study, update),
                seconds=1.5,
                at=START + update + 0.5,
            )
        )


def _trouble(study: Study, update: int) -> dict[str, float | None]:
    """The metrics that tell of trouble in training, where the study has some."""
    metrics: dict[str, float | None] = {}
    if study.entropies:
        metrics["entropy/student"] = study.entropies[0 if update <= study.updates / 2 else 1]
    if study.infinite_divergences:
        metrics["divergence/distill/forward_kl_exact"] = None if update <= study.infinite_divergences else 0.5
    return metrics


def _grade(answer: AnswerRecord, right: bool, unscored: bool) -> GradeRecord:
    verdict = "not_scored" if unscored else "pass" if right else "fail"
    return GradeRecord(
        run_id=answer.run_id,
        answer_key=answer.key,
        grader="exact",
        version="1",
        verdict=verdict,
        score=None if unscored else float(right),
        extracted=str(answer.sample_row),
        well_formed=True,
        lenient=None if unscored else verdict,
        error="grader timed out" if unscored else None,
    )


def _write_plan(
    spool: Spool, study: Study, cell: Cell, name: str, *, seed: int, position: int, base: str | None
) -> None:
    spool.append(
        RunRecord(
            run_id=name,
            method=cell.method,
            model="tiny-demo",
            seed=seed,
            spec={"method": {"name": cell.method}, "seed": seed, "budget": {"kind": "updates"}},
            provenance={"git_commit": "0" * 40, "dirty": False},
            created_at=START,
        )
    )
    spool.append(
        PlanCell(
            run_id=name,
            plan=study.plan,
            plan_hash=study.plan_hash,
            position=position,
            label=cell.label,
            is_control=cell.is_control,
            base_run_id=base,
            overrides={},
            axes=dict(cell.axes),
            tags=("synthetic",),
            tuning=dict(cell.tuning),
        )
    )
    for sequence, status in enumerate(cell.statuses):
        error = "the trainer ran out of memory" if status == "failed" else None
        happened = START + sequence if status in ("queued", "running") else START + study.updates + sequence
        spool.append(RunEvent(name, sequence, status, happened, error))


def _write_rollouts(spool: Spool, study: Study, name: str, update: int, rng: np.random.Generator) -> None:
    for index in range(study.rollouts):
        passed = rng.random() < 0.5
        scored = index >= study.unscored_rollouts
        spool.append(
            RolloutRecord(
                run_id=name,
                update=update,
                index=index,
                problem_id=f"train-{index}",
                weights_version=update - 1,
                prompt_tokens=3,
                completion_tokens=5,
                truncated=False,
                verdict=("pass" if passed else "fail") if scored else "not_scored",
                score=float(passed) if scored else None,
            )
        )
