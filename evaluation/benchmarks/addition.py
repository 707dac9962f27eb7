"""Three-digit addition, written out digit by digit: the task of the tiny base models.

``824+078`` is answered by ``4+8+0=12;2+7+1=10;8+0+1=09#0902``: digit + digit + carry = two digits, least digit
first, then the sum with its leading carry after ``#``. Only the text after the last ``#`` is graded, strictly.

The million ordered questions are put in one fixed random order. The first ``HELD_OUT`` of it are the test split, the
next ``HELD_OUT`` the validation split, and the train split is the rest, without any question that has the two operands
of a held-out one in either order.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.worked import step_feedback
from evaluation.grading.exact import grade_after_marker
from evaluation.problems import Grade, Message, Problem, Split

DIGITS = 3
HELD_OUT = 200
DEFAULT_TRAIN = 20_000
"""Size of the train split when no limit is given; more are generated on request."""

_ORDER_SEED = 20260
_OPERANDS = 10**DIGITS
_FORM = re.compile(r"(\d\+\d\+\d=\d\d;){2}\d\+\d\+\d=\d\d#\d{4}")

Question = tuple[int, int]


def question_text(question: Question) -> str:
    """``(824, 78)`` as ``824+078``."""
    first, second = question
    return f"{first:0{DIGITS}d}+{second:0{DIGITS}d}"


def answer_text(question: Question) -> str:
    """The sum with its leading carry: ``(824, 78)`` gives ``0902``."""
    return f"{sum(question):0{DIGITS + 1}d}"


def steps(question: Question) -> list[str]:
    """The right steps: ``(824, 78)`` gives ``4+8+0=12``, ``2+7+1=10``, ``8+0+1=09``."""
    first, second = (f"{operand:0{DIGITS}d}"[::-1] for operand in question)
    written, carry = [], 0
    for x, y in zip(first, second, strict=True):
        result = int(x) + int(y) + carry
        written.append(f"{x}+{y}+{carry}={result:02d}")
        carry = result // 10
    return written


def solution_text(question: Question) -> str:
    """The worked solution: ``(824, 78)`` gives ``4+8+0=12;2+7+1=10;8+0+1=09#0902``."""
    return f"{';'.join(steps(question))}#{answer_text(question)}"


@functools.cache
def held_out_questions() -> dict[Split, tuple[Question, ...]]:
    """The fixed questions of the test and the validation split; no two of them have the same two operands."""
    chosen: list[Question] = []
    seen: set[frozenset[int]] = set()
    for question in _all_questions():
        if frozenset(question) not in seen:
            seen.add(frozenset(question))
            chosen.append(question)
        if len(chosen) == 2 * HELD_OUT:
            break
    return {"test": tuple(chosen[:HELD_OUT]), "validation": tuple(chosen[HELD_OUT:])}


@functools.cache
def held_out_operands() -> frozenset[frozenset[int]]:
    """The unordered operand pairs that nothing may be trained on."""
    return frozenset(frozenset(question) for questions in held_out_questions().values() for question in questions)


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The problems of ``split`` in their fixed order; ``limit`` None takes 200 held-out or DEFAULT_TRAIN of train.

    Raises ValueError when more training problems are asked for than there are.
    """
    if split != "train":
        return [_problem(question, split) for question in held_out_questions()[split][:limit]]
    wanted = DEFAULT_TRAIN if limit is None else limit
    # A pair of two different operands takes two ordered questions out of the train split.
    available = _OPERANDS**2 - sum(len(pair) for pair in held_out_operands())
    if wanted > available:
        raise ValueError(f"benchmark addition: {wanted} training problems asked for, there are {available}")
    return [_problem(question, split) for question in islice(_train_questions(), wanted)]


def feedback(question: Question, text: str) -> str:
    """What is wrong in ``text`` (see ``evaluation.benchmarks.worked``): the first wrong step as it should be."""
    return step_feedback(text, steps(question), answer_text(question))


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the text after the last ``#`` is the sum, with its leading carry.

    Feedback on a wrong answer names its first wrong step as it should be.
    """
    first, second = map(int, problem.prompt[0].content.split("+"))
    return grade_after_marker(
        problem, text, marker="#", form=_FORM, explain=lambda read: feedback((first, second), read)
    )


@functools.cache
def _order() -> np.ndarray:
    # RandomState and not Generator: NumPy promises that its stream never changes, and the splits must not either.
    return np.random.RandomState(_ORDER_SEED).permutation(_OPERANDS**2)


def _all_questions() -> Iterator[Question]:
    for index in _order():
        yield int(index) // _OPERANDS, int(index) % _OPERANDS


def _train_questions() -> Iterator[Question]:
    return (question for question in _all_questions() if frozenset(question) not in held_out_operands())


def _problem(question: Question, split: Split) -> Problem:
    return Problem(
        id=question_text(question),
        benchmark="addition",
        split=split,
        prompt=(Message(role="user", content=question_text(question)),),
        answer=answer_text(question),
        solution=solution_text(question),
    )


ADDITION = Benchmark(
    name="addition",
    version="2",
    title="Three-digit addition, digit by digit",
    licence="procedural",
    source="generated by evaluation.benchmarks.addition",
    splits=("train", "validation", "test"),
    max_new_tokens=40,
    load=load,
    grade=grade,
)
