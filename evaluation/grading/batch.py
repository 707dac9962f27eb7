"""Grading many answers, where one grader's failure costs one grade and not the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.workers import grading_workers
from evaluation.problems import Grade, Problem


def grade_many(
    benchmark: Benchmark, pairs: Sequence[tuple[Problem, str]], *, workers: int | None = None
) -> list[Grade]:
    """The grade of each (problem, text), in their order.

    ``workers`` answers are graded at once (None: the setting STILLROOM_GRADING_WORKERS, else the cores): each thread
    takes the next answer when it is free, so that a slow answer holds up one thread and nothing else; the computing
    is done in grading processes and sandboxes. A grader that raises gives ``not_scored`` with the error: an answer is
    neither right nor wrong because its grader failed.
    """
    with ThreadPoolExecutor(workers or grading_workers(), thread_name_prefix="grading") as threads:
        return list(threads.map(lambda pair: grade_one(benchmark, *pair), pairs))


def grade_one(benchmark: Benchmark, problem: Problem, text: str) -> Grade:
    """The benchmark's grade; ``not_scored`` with the error when its grader raises."""
    try:
        return benchmark.grade(problem, text)
    except Exception as error:  # graders are plug-ins: whatever one raises is its failure, never the answer's
        return Grade(
            verdict="not_scored",
            score=None,
            grader=benchmark.name,
            version=benchmark.version,
            error=f"{type(error).__name__}: {error}"[:1000],
        )
