"""Two-digit additions in plain words: right sums, disjoint splits, the last number counts."""

from __future__ import annotations

import hashlib
import re

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.smol_addition import HELD_OUT, SMOL_ADDITION
from evaluation.grading.exact import last_number
from evaluation.problems import Problem


def operands(problem: Problem) -> list[int]:
    found = re.fullmatch(r"What is (\d\d) \+ (\d\d)\? Answer in one short sentence\.", problem.prompt[0].content)
    assert found is not None
    return [int(found[1]), int(found[2])]


def test_questions_solutions_and_answers_agree() -> None:
    assert BENCHMARKS["smol_addition"] is SMOL_ADDITION
    for split in SMOL_ADDITION.splits:
        for problem in SMOL_ADDITION.load(split, limit=300):
            first, second = operands(problem)
            assert problem.answer == str(first + second)
            assert problem.solution == f"{first} + {second} = {first + second}"


def test_the_splits_are_fixed_and_share_no_operand_pair() -> None:
    pairs = {split: {frozenset(operands(p)) for p in SMOL_ADDITION.load(split)} for split in SMOL_ADDITION.splits}
    assert len(pairs["test"]) == len(pairs["validation"]) == HELD_OUT
    assert not pairs["test"] & pairs["validation"]
    assert not pairs["train"] & (pairs["test"] | pairs["validation"])
    text = "\n".join(p.id for split in ("test", "validation") for p in SMOL_ADDITION.load(split))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "beeb8372c5248011"


def test_more_training_problems_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="8100 training problems asked for, there are 7846"):
        SMOL_ADDITION.load("train", limit=8_100)


def test_every_gold_solution_passes() -> None:
    for split in SMOL_ADDITION.splits:
        for problem in SMOL_ADDITION.load(split, limit=500):
            assert problem.solution is not None
            grade = SMOL_ADDITION.grade(problem, problem.solution)
            assert (grade.verdict, grade.extracted, grade.well_formed) == ("pass", problem.answer, True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("59 + 63 = 122", "122"),
        ("The answer is 122.", "122"),
        ('The answer is "59 + 63 = 122."', "122"),
        ("59 + 63 = **122**", "122"),
        ("It is 122, not 121", "121"),
        ("9,500.00", "9500"),
        ("8,000", "8000"),
        ("8.00", "8"),
        ("1.50", "1.50"),
        ("59-63", "63"),
        ("59 - 63 = -4", "-4"),
        ("x2 and h2o", None),
        ("no number", None),
        ("", None),
    ],
)
def test_the_last_number_is_read_in_canonical_form(text: str, number: str | None) -> None:
    assert last_number(text) == number


def test_a_right_sum_followed_by_another_number_fails() -> None:
    problem = SMOL_ADDITION.load("test")[0].model_copy(update={"answer": "122"})
    assert SMOL_ADDITION.grade(problem, "The sum is 122. Check: 122 - 63 = 59").verdict == "fail"
    assert SMOL_ADDITION.grade(problem, "The sum is 122.5").well_formed is False
    assert SMOL_ADDITION.grade(problem, "I do not know").well_formed is False
