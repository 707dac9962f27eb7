"""Grading many: order, and graders that raise."""

from __future__ import annotations

import threading
from pathlib import Path

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.problems import Grade, Message, Problem, Split


def _problem(number: int) -> Problem:
    message = Message(role="user", content=f"{number}?")
    return Problem(id=str(number), benchmark="b", split="test", prompt=(message,), answer=str(number))


def _benchmark(raises: int) -> Benchmark:
    def grade(problem: Problem, text: str) -> Grade:
        if int(problem.id) % 10 == raises:
            raise KeyError(f"no rule for {problem.id}")
        right = text == problem.answer
        return Grade(verdict="pass" if right else "fail", score=float(right), grader="g", version="3")

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        return []

    return Benchmark("b", "7", "t", "l", "s", ("test",), 8, load, grade)


def test_grades_come_in_order() -> None:
    pairs = [(_problem(n), str(n if n % 3 else -n)) for n in range(200)]
    grades = grade_many(_benchmark(raises=99), pairs)
    assert [grade.verdict for grade in grades] == ["pass" if n % 3 or n == 0 else "fail" for n in range(200)]
    assert grade_many(_benchmark(raises=99), []) == []


def test_a_grader_that_raises_costs_its_own_answers_only() -> None:
    """A verifier failing for 10 % leaves the accuracy of the rest as it is."""
    pairs = [(_problem(n), str(n if n % 2 else -1)) for n in range(200)]
    grades = grade_many(_benchmark(raises=4), pairs)
    failed = [grade for grade in grades if grade.verdict == "not_scored"]
    assert len(failed) == 20
    assert {(grade.score, grade.grader, grade.version) for grade in failed} == {(None, "b", "7")}
    assert failed[0].error == "KeyError: 'no rule for 4'"
    scored = [grade for grade in grades if grade.verdict != "not_scored"]
    assert sum(grade.verdict == "pass" for grade in scored) == 100


def test_it_works_in_a_thread() -> None:
    grades: list[Grade] = []
    thread = threading.Thread(target=lambda: grades.extend(grade_many(_benchmark(raises=99), [(_problem(1), "1")])))
    thread.start()
    thread.join()
    assert [grade.verdict for grade in grades] == ["pass"]
