"""A chain of one-digit sums and products, each step of which needs the result before.

``9*7+5+3`` is worked from left to right, every result taken modulo 10: ``9*7=3;3+5=8;8+3=1#1``. Only the text after
the last ``#`` is graded, strictly. After a wrong step a reference solution no longer fits the rest of the answer: what
a teacher that was shown it says there is worth little.

The 80,000 questions with four digits and three signs are put in one fixed random order. The first ``HELD_OUT`` of it
are the test split, the next ``HELD_OUT`` the validation split, and the train split is the rest, without any question
that is a held-out one or has its first two digits exchanged.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.worked import step_feedback
from evaluation.grading.exact import grade_after_marker
from evaluation.problems import Grade, Message, Problem, Split

SIGNS = "+*"
OPERANDS = 4
HELD_OUT = 200
DEFAULT_TRAIN = 20_000
"""Size of the train split when no limit is given; more are there on request."""

_ORDER_SEED = 20261
_FORM = re.compile(r"(\d[+*]\d=\d;){2}\d[+*]\d=\d#\d")


def result(first: int, sign: str, second: int) -> int:
    """``first`` plus or times ``second``, modulo 10."""
    return (first + second if sign == "+" else first * second) % 10


def steps(question: str) -> list[str]:
    """The right steps: ``9*7+5+3`` gives ``9*7=3``, ``3+5=8``, ``8+3=1``."""
    value, written = int(question[0]), []
    for sign, operand in zip(question[1::2], question[2::2], strict=True):
        step = f"{value}{sign}{operand}="
        value = result(value, sign, int(operand))
        written.append(f"{step}{value}")
    return written


def solution_text(question: str) -> str:
    """The worked solution: ``9*7+5+3`` gives ``9*7=3;3+5=8;8+3=1#1``."""
    written = steps(question)
    return f"{';'.join(written)}#{written[-1][-1]}"


def exchanged(question: str) -> str:
    """The question with its first two digits exchanged, which has the same results: ``7*9+5+3``."""
    return question[2] + question[1] + question[0] + question[3:]


@functools.cache
def split_questions() -> dict[Split, tuple[str, ...]]:
    """All questions of each split, in their order."""
    chosen: list[str] = []
    taken: set[str] = set()
    questions = _all_questions()
    for question in questions:
        if len(chosen) == 2 * HELD_OUT:
            break
        if question not in taken:
            chosen.append(question)
            taken |= {question, exchanged(question)}
    train = tuple(question for question in questions if question not in taken)
    return {"test": tuple(chosen[:HELD_OUT]), "validation": tuple(chosen[HELD_OUT:]), "train": train}


@functools.cache
def held_out_questions() -> frozenset[str]:
    """The questions that nothing may be trained on."""
    splits = split_questions()
    chosen = [*splits["test"], *splits["validation"]]
    return frozenset([*chosen, *map(exchanged, chosen)])


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The problems of ``split`` in their fixed order; ``limit`` None takes 200 held-out or DEFAULT_TRAIN of train.

    Raises ValueError when more training problems are asked for than there are.
    """
    questions = split_questions()[split]
    wanted = (DEFAULT_TRAIN if split == "train" else HELD_OUT) if limit is None else limit
    if split == "train" and wanted > len(questions):
        raise ValueError(f"benchmark chain: {wanted} training problems asked for, there are {len(questions)}")
    return [_problem(question, split) for question in questions[:wanted]]


def feedback(question: str, text: str) -> str:
    """What is wrong in ``text`` (see ``evaluation.benchmarks.worked``): the first wrong step as it should be."""
    return step_feedback(text, steps(question), solution_text(question)[-1])


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the text after the last ``#`` is the last result.

    Feedback on a wrong answer names its first wrong step as it should be.
    """
    question = problem.prompt[0].content
    return grade_after_marker(problem, text, marker="#", form=_FORM, explain=lambda read: feedback(question, read))


def _all_questions() -> list[str]:
    # RandomState and not Generator: NumPy promises that its stream never changes, and the splits must not either.
    order = np.random.RandomState(_ORDER_SEED).permutation(10**OPERANDS * len(SIGNS) ** (OPERANDS - 1))
    return [_question(int(index)) for index in order]


def _question(index: int) -> str:
    index, first = divmod(index, 10)
    text = str(first)
    for _ in range(OPERANDS - 1):
        index, sign = divmod(index, len(SIGNS))
        index, operand = divmod(index, 10)
        text += f"{SIGNS[sign]}{operand}"
    return text


def _problem(question: str, split: Split) -> Problem:
    solution = solution_text(question)
    return Problem(
        id=question,
        benchmark="chain",
        split=split,
        prompt=(Message(role="user", content=question),),
        answer=solution[-1],
        solution=solution,
    )


CHAIN = Benchmark(
    name="chain",
    version="1",
    title="A chain of one-digit sums and products modulo 10",
    licence="procedural",
    source="generated by evaluation.benchmarks.chain",
    splits=("train", "validation", "test"),
    max_new_tokens=24,
    load=load,
    grade=grade,
)
