"""Synthetic traces for the pages' tests: two cells, three updates, two problems."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.results.ingest import ingest
from evaluation.results.records import TraceRecord
from evaluation.results.spool import Spool
from evaluation.results.traces import TokenTrace, write_traces
from tests.evaluation.results.factory import CELLS, Study, run_id, write_base, write_run

STUDY = Study(seeds=(0,), updates=20, every=10, problems=3, cells=(CELLS[1], CELLS[2]))
GRPO, OPSD = CELLS[1], CELLS[2]
PIECES = ["<b>", "4", "+", "\n", " ", "*x*", "<script>alert(1)</script>", "<|end|>"]
"""Tokens that must be shown as they are."""


def trace(problem: str, update: int, *, taught: bool = True, tokens: list[str] | None = None) -> TokenTrace:
    """A trace whose divergence grows along the tokens and falls with the updates."""
    pieces = tokens or PIECES
    count = len(pieces)
    rng = np.random.default_rng([update, *problem.encode()])
    student = rng.dirichlet([1.0] * 5, size=count)
    teacher = rng.dirichlet([1.0] * 5, size=count)
    names = [["4", "5", "<i>", " ", "\n"]] * count
    divergence: list[float | None] = [0.01 * (place + 1) / (1 + update) for place in range(count)]
    divergence[0] = None
    teachers: dict[str, Any] = {
        "student_top_teacher_prob": teacher.tolist(),
        "teacher_logprob": [math.log(p) for p in teacher[:, 0]],
        "teacher_entropy": (-(teacher * np.log(teacher)).sum(1)).tolist(),
        "teacher_top": names,
        "teacher_top_prob": teacher.tolist(),
        "teacher_top_student_prob": student.tolist(),
        "forward_kl": (teacher * np.log(teacher / student)).sum(1).tolist(),
        "divergence": divergence,
        "weight": [1.0] * count,
    }
    return TokenTrace(
        benchmark="addition",
        split="test",
        problem_id=problem,
        sample_index=0,
        seed="17",
        student_prompt="<|user|>1+1<|end|><|assistant|>",
        teacher_prompt="<|user|>1+1<|hint|>*two* <img src=x onerror=alert(2)><|end|><|assistant|>" if taught else None,
        context_kind="solution" if taught else "none",
        context_text="*two* <img src=x onerror=alert(2)>" if taught else None,
        answer="".join(pieces),
        feedback=None,
        extracted="4",
        temperature=1.0,
        token_ids=list(range(count)),
        tokens=pieces,
        student_logprob=[math.log(p) for p in student[:, 0]],
        student_entropy=(-(student * np.log(student)).sum(1)).tolist(),
        student_top=names,
        student_top_prob=student.tolist(),
        **(teachers if taught else {}),
    )


def write_trace(store: Path, run: str, update: int, traces: list[TokenTrace], *, verdict: str = "pass") -> None:
    """Files and facts of an evaluation's traces."""
    folder = store / "runs" / run
    file = write_traces(folder, f"{update:06d}-addition-test-0000", traces)
    with Spool(folder, role="evaluator", attempt=1) as spool:
        for row, one in enumerate(traces):
            known = [value for value in one.divergence or [] if value is not None]
            spool.append(
                TraceRecord(
                    run_id=run,
                    source="evaluation",
                    update=update,
                    benchmark="addition",
                    split="test",
                    problem_id=one.problem_id,
                    sample_index=0,
                    sample_file=file,
                    sample_row=row,
                    tokens=len(one.tokens),
                    verdict=verdict,
                    score=1.0,
                    student_update=update,
                    term="distill" if one.divergence else None,
                    divergence="forward_kl_exact" if one.divergence else None,
                    mean_divergence=sum(known) / len(known) if known else None,
                    mean_forward_kl=float(np.mean(one.forward_kl)) if one.forward_kl else None,
                    mean_entropy=float(np.mean(one.student_entropy)),
                    teacher="frozen" if one.divergence else None,
                    context=one.context_kind,
                    note=None if one.divergence else "the method has no teacher",
                    seconds=0.1,
                )
            )


def write_traced_study(store: Path) -> None:
    """OPSD with its teacher and GRPO without one, each traced after 10 and 20 updates."""
    write_base(store, STUDY)
    for cell in STUDY.cells:
        run = write_run(store, STUDY, cell, 0)
        assert run == run_id(STUDY, cell, 0)
        for update in (10, 20):
            write_trace(store, run, update, [trace(p, update, taught=cell is OPSD) for p in ("p0", "p1")])
    ingest(store)
