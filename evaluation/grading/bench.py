"""How grading scales with workers: ``python -m evaluation.grading.bench [--json PATH] [--workers N] [--quick]``.

math     symbolic comparisons by Math-Verify in grading processes
code     small programs with their tests in the sandbox (left out where there is none)
hanging  the math case with answers that never end in it, one in a hundred, each ended after ``CPU_SECONDS``

Each round grades as many items with 1 worker and with N, first the one side, next time the other; the ratio is the
median over the rounds. No item is graded twice: the algebra system remembers what it has seen. On a machine that does
other work, seconds say little; with fewer free cores than workers, so does the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.grading.code import grade_code
from evaluation.grading.math import grade_math
from evaluation.grading.sandbox import SandboxUnavailableError, find_sandbox
from evaluation.grading.workers import SETTING
from evaluation.problems import Grade, Message, Problem, Split

CPU_SECONDS = 0.5
"""Processor time of the answers that never end."""

ENDLESS = "9^{9^{9^{9}}}"

Items = list[tuple[Problem, str]]


@dataclass(frozen=True)
class Result:
    """Answers a second with one worker and with several."""

    case: str
    items: int
    workers: int
    one: float
    several: float
    ratio: float
    """Median over the rounds of the seconds of one worker over those of several."""
    right: int
    """Answers with the expected verdict, of ``items``; the same for both."""


def _problem(number: int, answer: str, tests: tuple[str, ...] | None = None) -> Problem:
    message = Message(role="user", content="?")
    return Problem(id=str(number), benchmark="bench", split="test", prompt=(message,), answer=answer, tests=tests)


def math_items(count: int, first: int = 0) -> Items:
    """Pairs that need algebra, right where the number is even; ``first`` is an even number."""
    return [
        (_problem(n, f"(x+{n})^2+\\sqrt{{{n + 2}}}"), f"\\boxed{{x^2+{2 * n}x+{n * n + n % 2}+\\sqrt{{{n + 2}}}}}")
        for n in range(first, first + count)
    ]


def code_items(count: int, first: int = 0) -> Items:
    """Programs of some 0.1 s of processor time, right where the number is even."""
    program = "```python\ndef f(n):\n    return sum(i * i for i in range(n)) + {wrong}\n```"
    test = "assert f(300_000) == sum(i * i for i in range(300_000))"
    return [(_problem(n, "", (test,)), program.format(wrong=n % 2)) for n in range(first, first + count)]


def hanging_items(count: int, first: int = 0) -> Items:
    """The math items with an endless answer, which is wrong, in each hundred."""
    return [
        (problem, f"\\boxed{{{ENDLESS}}}" if n % 100 == 1 else text)
        for n, (problem, text) in enumerate(math_items(count, first))
    ]


def _grade_math(problem: Problem, text: str) -> Grade:
    return grade_math(problem, text, cpu_seconds=CPU_SECONDS if ENDLESS in text else 5.0)


def _grade_code(problem: Problem, text: str) -> Grade:
    return grade_code(problem, text)


def _benchmark(grade: Callable[[Problem, str], Grade]) -> Benchmark:
    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        return []

    return Benchmark("bench", "1", "bench", "none", "here", ("test",), 1, load, grade)


def measure(
    case: str,
    grade: Callable[[Problem, str], Grade],
    make: Callable[[int, int], Items],
    size: int,
    workers: int,
    rounds: int,
) -> Result:
    """Both sides in turns, after an unmeasured one that starts the processes. ``size`` is an even number."""
    benchmark = _benchmark(grade)
    grade_many(benchmark, make(size, 0), workers=workers)
    first = size
    seconds: dict[int, list[float]] = {1: [], workers: []}
    right: set[int] = set()
    for number in range(rounds):
        for side in (1, workers) if number % 2 == 0 else (workers, 1):
            items = make(size, first)
            first += size
            began = time.perf_counter()
            grades = grade_many(benchmark, items, workers=side)
            seconds[side].append(time.perf_counter() - began)
            right.add(sum((found.verdict == "pass") == (n % 2 == 0) for n, found in enumerate(grades)))
    if len(right) != 1:
        raise AssertionError(f"{case}: the verdicts depend on the number of workers: {sorted(right)} right")
    ratio = statistics.median(one / several for one, several in zip(seconds[1], seconds[workers], strict=True))
    speed = {side: size / statistics.median(seconds[side]) for side in seconds}
    return Result(case, size, workers, speed[1], speed[workers], ratio, right.pop())


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Prints the table; returns its rows."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.grading.bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--workers", type=int, default=2, help="workers to compare with one")
    parser.add_argument("--quick", action="store_true", help="two rounds of fewer items")
    options = parser.parse_args(arguments)
    if options.workers < 2:
        parser.error("--workers: give 2 or more, to compare with one")
    os.environ[SETTING] = str(options.workers)
    rounds, size = (2, 40) if options.quick else (10, 120)
    results = [
        measure("math", _grade_math, math_items, size, options.workers, rounds),
        measure("hanging", _grade_math, hanging_items, size, options.workers, rounds),
    ]
    try:
        find_sandbox()
        results.append(measure("code", _grade_code, code_items, size // 4, options.workers, rounds))
    except SandboxUnavailableError as error:
        Console(stderr=True).print(f"code is left out: {error}")
    table = Table("case", "answers", "1 worker, answers/s", f"{options.workers} workers, answers/s", "ratio", "right")
    for row in results:
        table.add_row(
            row.case, str(row.items), f"{row.one:,.1f}", f"{row.several:,.1f}", f"{row.ratio:.2f}", str(row.right)
        )
    Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({"cases": [asdict(row) for row in results]}, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
