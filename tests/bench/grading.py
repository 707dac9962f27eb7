"""Graders and sandboxes on more cores: ``python -m tests.bench.grading [--answers N]``.

Answers that each wait and compute little are graded by one worker and by two, alternating; the ratio of the times is
the result. A mostly idle answer is used because the sandbox's own start already fills a core, and a loaded machine
cannot show how graders scale.
"""

from __future__ import annotations

import argparse
import time

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.grading.code import grade_code
from evaluation.problems import Message, Problem

ROUNDS = 3
ANSWER = "```python\nimport time\ndef square(x):\n    time.sleep(0.25)\n    return x * x\n```"

PROBLEM = Problem(
    id="square",
    benchmark="bench",
    split="test",
    prompt=(Message(role="user", content="Square a number."),),
    answer="",
    tests=("assert square(2) == 4",),
)
BENCHMARK = Benchmark(
    name="bench",
    version="1",
    title="One small program",
    licence="",
    source="",
    splits=("test",),
    max_new_tokens=1,
    load=lambda split, *, limit=None, root=None: [PROBLEM],
    grade=grade_code,
)


def seconds(workers: int, answers: int) -> float:
    """Time to grade ``answers`` answers; all must pass."""
    began = time.monotonic()
    grades = grade_many(BENCHMARK, [(PROBLEM, ANSWER)] * answers, workers=workers)
    assert all(grade.verdict == "pass" for grade in grades), grades
    return time.monotonic() - began


def main(arguments: list[str] | None = None) -> None:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.grading")
    parser.add_argument("--answers", type=int, default=24)
    answers = parser.parse_args(arguments).answers
    seconds(2, 2)
    times = {1: 0.0, 2: 0.0}
    for _ in range(ROUNDS):
        for workers in times:
            times[workers] += seconds(workers, answers)
    print(f"1 worker {times[1]:.1f} s, 2 workers {times[2]:.1f} s: {times[1] / times[2]:.2f} times as fast")


if __name__ == "__main__":
    main()
