"""Evaluation of one checkpoint in a worker process: load, ask, grade, record, and then say that it is done."""

from __future__ import annotations

import functools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import Answer, evaluate
from evaluation.problems import Problem
from evaluation.recording import close_evaluation, record_answers
from evaluation.results.spool import Spool
from evaluation.samplers.hf import HFSampler
from training.base_models import resolve_model
from training.checkpoints import STUDENT_FILE, CheckpointError, segment_report, write_json
from training.learners.loading import fix_numerics, load_base, load_renderer
from training.learners.weights import load_weights, low_precision_copy, student_copy
from training.rendering import Renderer, language_of
from training.spec import RunSpec
from training.traces.checkpoint import CheckpointTracer
from training.warm import warm_sources

ROLE = "evaluator"
BATCHES_PER_PART = 4
"""An evaluation is recorded whenever so many full batches are answered: a crash loses no more."""


def evaluate_segment(
    spec: RunSpec,
    run_id: str,
    run_dir: Path,
    segment: int | None,
    *,
    cache: Path,
    benchmarks_root: Path | None,
    attempt: int,
) -> dict[str, Any]:
    """Evaluates the checkpoint of a done segment (None: the untrained model) and returns what its marker holds.

    An evaluation that is done already is only reported. Raises CheckpointError when there is no such checkpoint.
    """
    weights, update, cost, is_last = None, 0, {}, True
    if segment is not None:
        report = segment_report(run_dir, segment)
        if report is None:
            raise CheckpointError(f"segment {segment} of {run_dir} is not done: there is nothing to evaluate")
        weights, update, cost = run_dir / report.checkpoint / STUDENT_FILE, report.last_update, report.cost
        is_last = report.finished
    marker = marker_file(run_dir, update)
    if marker.exists():
        return json.loads(marker.read_text())
    with Spool(run_dir, role=ROLE, attempt=attempt) as spool:
        return evaluate_checkpoint(
            spec,
            run_id,
            run_dir,
            weights,
            update,
            cost,
            spool,
            cache=cache,
            benchmarks_root=benchmarks_root,
            retention=is_last,
        )


def evaluate_checkpoint(
    spec: RunSpec,
    run_id: str,
    run_dir: Path,
    weights: Path | None,
    update: int,
    cost: Mapping[str, float],
    spool: Spool,
    *,
    cache: Path,
    benchmarks_root: Path | None,
    retention: bool = True,
) -> dict[str, Any]:
    """Answers and grades the benchmarks of ``spec.evaluation`` with ``weights`` (None: the base model).

    ``retention``: those of its retention, too. The student never sees privileged context here. Traces are made beside
    the answers and read nothing into them. Writes ``evaluations/<update>.json`` last: {update, seconds, benchmarks:
    {name: {problems, answers, passed, not_scored}}}, which is also returned.
    """
    began = time.perf_counter()
    device = fix_numerics(spec.compute)
    sources = warm_sources(spec, benchmarks_root)
    resolved = resolve_model(spec.model, cache)
    base = load_base(resolved.path, resolved.content_hash, device)
    renderer = load_renderer(resolved, base, spec.model.system_prompt)
    sampler = HFSampler(
        _answering_model(base, weights, spec),
        end_ids=renderer.end_ids,
        pad_id=renderer.pad_id,
        max_rows=spec.compute.sampling_rows,
        decode=renderer.decode,
    )
    tracer = CheckpointTracer(spec, run_id, run_dir, update, weights, spool, base, renderer, language_of(resolved))
    counts = {
        name: _evaluate_parts(
            spec, run_id, run_dir, update, sampler, renderer, benchmark, problems, cost, spool, tracer
        )
        for name, (benchmark, problems) in sources.evaluations.items()
        if retention or name not in spec.evaluation.retention
    }
    marker = {"update": update, "seconds": time.perf_counter() - began, "benchmarks": counts}
    write_json(marker_file(run_dir, update), marker)
    return marker


def _evaluate_parts(
    spec: RunSpec,
    run_id: str,
    run_dir: Path,
    update: int,
    sampler: HFSampler,
    renderer: Renderer,
    benchmark: Benchmark,
    problems: Sequence[Problem],
    cost: Mapping[str, float],
    spool: Spool,
    tracer: CheckpointTracer,
) -> dict[str, int]:
    """One benchmark part by part; parts that are done are not asked again, and which they are does not depend on it."""
    asked = spec.evaluation
    size = max(1, BATCHES_PER_PART * spec.compute.sampling_rows // asked.samples)
    total: Counter[str] = Counter()
    seconds = 0.0
    for part, start in enumerate(range(0, len(problems), size)):
        some = problems[start : start + size]
        marker = part_file(run_dir, update, benchmark.name, part)
        if not marker.exists():
            began = time.perf_counter()
            answers = evaluate(
                sampler,
                functools.partial(renderer.student_ids, thinking=asked.thinking),
                renderer.decode,
                benchmark,
                some,
                samples=asked.samples,
                sampling=asked.sampling,
                seed=spec.seed,
            )
            record_answers(spool, run_dir, run_id, update, benchmark, asked.split, some, answers, part)
            took = time.perf_counter() - began
            tracer.record(benchmark, asked.split, part, start, some, answers)
            write_json(marker, {**_count(answers, len(some)), "seconds": took})
        done = json.loads(marker.read_text())
        seconds += done.pop("seconds")
        total.update(done)
    close_evaluation(spool, run_id, update, benchmark, asked.split, len(problems), asked.samples, cost, seconds)
    return dict(total)


def part_file(run_dir: Path, update: int, benchmark: str, part: int) -> Path:
    """The file whose presence says that a part of an evaluation is recorded; it holds the counts of its answers."""
    return run_dir / "evaluations" / "parts" / f"{update}-{benchmark}-{part:04d}.json"


def marker_file(run_dir: Path, update: int) -> Path:
    """The file whose presence says that the checkpoint after ``update`` is evaluated."""
    return run_dir / "evaluations" / f"{update}.json"


def _answering_model(base: PreTrainedModel, weights: Path | None, spec: RunSpec) -> PreTrainedModel:
    from safetensors.torch import load_file

    model = base
    if weights is not None:
        adapter = spec.method.adapter if spec.method else None
        model = student_copy(base, adapter, seed=spec.seed).requires_grad_(False)
        load_weights(model, load_file(weights))
    return low_precision_copy(model) if spec.compute.precision == "bfloat16_autocast" else model


def _count(answers: Sequence[Answer], problems: int) -> dict[str, int]:
    verdicts = Counter(answer.grade.verdict for answer in answers)
    return {
        "problems": problems,
        "answers": len(answers),
        "passed": verdicts["pass"],
        "not_scored": verdicts["not_scored"],
    }
