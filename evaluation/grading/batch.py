"""Grading many answers, where one grader's failure costs one grade and not the evaluation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Grade, Problem

THREADS = min(4, os.cpu_count() or 1)
"""Answers graded at once: what waits for grading processes and sandboxes runs side by side."""


def grade_many(benchmark: Benchmark, pairs: Sequence[tuple[Problem, str]]) -> list[Grade]:
    """The grade of each (problem, text), in their order.

    A grader that raises gives ``not_scored`` with the error: an answer is neither right nor wrong because its grader
    failed.
    """
    with ThreadPoolExecutor(THREADS, thread_name_prefix="grading") as threads:
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
