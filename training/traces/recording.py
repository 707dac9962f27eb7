"""Traces into a run's folder: the values to a sample file, then one fact a trace."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from evaluation.results.records import TraceRecord
from evaluation.results.spool import Spool
from evaluation.results.traces import Numbers, TokenTrace, write_traces
from training.draws import Group
from training.method import Method
from training.traces.building import PLAIN_TEMPERATURE, Looked, looked_at
from training.traces.pieces import Vocabulary, token_pieces, whole_text
from training.traces.reading import Side
from training.traces.teaching import Teaching, teaching_of, weights_name
from training.trainer import Trainer

Source = Literal["evaluation", "training"]


@dataclass(frozen=True, slots=True)
class TraceRun:
    """Where traces of a run go."""

    spool: Spool
    run_dir: Path
    run_id: str


def trace(
    run: TraceRun,
    trainer: Trainer,
    method: Method,
    groups: Sequence[Group],
    *,
    source: Source,
    update: int,
    student_update: int,
    seeds: Sequence[int],
    samples: Sequence[int],
    name: str,
) -> None:
    """Looks at the first response of each group and records what is seen, in the file ``traces-<name>``.

    ``method`` is that of one update, ``seeds`` what the responses were drawn with, ``samples`` their places. Done
    again, it replaces its file by the same one.
    """
    began = time.perf_counter()
    teaching = teaching_of(method)
    looks = looked_at(trainer, method, student_update + 1, groups, teaching)
    if not looks:
        return
    traces = [
        _token_trace(trainer, method, teaching, look, seed, sample)
        for look, seed, sample in zip(looks, seeds, samples, strict=True)
    ]
    file = write_traces(run.run_dir, name, traces)
    seconds = (time.perf_counter() - began) / len(traces)
    for row, (look, stored) in enumerate(zip(looks, traces, strict=True)):
        grade = look.rollout.grade
        taught = teaching is not None and look.reason is None
        run.spool.append(
            TraceRecord(
                run_id=run.run_id,
                source=source,
                update=update,
                benchmark=stored.benchmark,
                split=stored.split,
                problem_id=stored.problem_id,
                sample_index=stored.sample_index,
                sample_file=file,
                sample_row=row,
                tokens=len(stored.token_ids),
                verdict=grade.verdict if grade else "not_scored",
                score=grade.score if grade else None,
                student_update=student_update,
                term=teaching.name if teaching and taught else None,
                divergence=teaching.divergence if teaching and taught else None,
                mean_divergence=_mean(stored.divergence),
                mean_forward_kl=_mean(stored.forward_kl),
                mean_entropy=sum(stored.student_entropy) / len(stored.student_entropy),
                teacher=weights_name(method.views[teaching.teacher]) if teaching and taught else None,
                context=stored.context_kind,
                note=look.reason,
                seconds=seconds,
            )
        )
    run.spool.flush()


def _token_trace(
    trainer: Trainer, method: Method, teaching: Teaching | None, look: Looked, seed: int, sample: int
) -> TokenTrace:
    rollout, sides, tokenizer = look.rollout, look.sides, trainer.renderer.tokenizer
    grade, ids = rollout.grade, list(rollout.completion.token_ids)
    words = Vocabulary(tokenizer, anchor=look.student_prompt[-1])
    teacher = sides.teacher
    kind = method.views[teaching.teacher].context.kind if teaching and look.reason is None else "none"
    return TokenTrace(
        benchmark=rollout.problem.benchmark,
        split=rollout.problem.split,
        problem_id=rollout.problem.id,
        sample_index=sample,
        seed=str(seed),
        student_prompt=whole_text(tokenizer, look.student_prompt),
        teacher_prompt=None if look.teacher_prompt is None else whole_text(tokenizer, look.teacher_prompt),
        context_kind=kind,
        context_text=look.context_text,
        answer=rollout.text or "",
        feedback=grade.feedback if grade else None,
        extracted=grade.extracted if grade else None,
        temperature=teaching.temperature if teaching else PLAIN_TEMPERATURE,
        token_ids=ids,
        tokens=token_pieces(tokenizer, ids),
        student_logprob=_numbers(sides.student.logprob),
        student_entropy=_numbers(sides.student.entropy),
        student_top=words.texts(sides.student.top.tolist()),
        student_top_prob=sides.student.top_prob.tolist(),
        student_top_teacher_prob=_others(sides.student),
        teacher_logprob=None if teacher is None else _numbers(teacher.logprob),
        teacher_entropy=None if teacher is None else _numbers(teacher.entropy),
        teacher_top=None if teacher is None else words.texts(teacher.top.tolist()),
        teacher_top_prob=None if teacher is None else teacher.top_prob.tolist(),
        teacher_top_student_prob=None if teacher is None else _others(teacher),
        forward_kl=None if sides.forward_kl is None else _numbers(sides.forward_kl),
        divergence=_gaps(look.values.get("divergence")),
        weight=_gaps(look.values.get("weight")),
    )


def _others(side: Side) -> list[list[float]] | None:
    return None if side.other_prob is None else side.other_prob.tolist()


def _numbers(values: Tensor) -> list[float]:
    return [float(value) for value in values.tolist()]


def _gaps(values: Tensor | None) -> Numbers | None:
    """The values with None where they are not finite: at tokens that take no part."""
    return None if values is None else [value if math.isfinite(value) else None for value in values.tolist()]


def _mean(values: Sequence[float | None] | None) -> float | None:
    known = [value for value in values or () if value is not None]
    return sum(known) / len(known) if known else None
