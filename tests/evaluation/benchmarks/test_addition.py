"""The addition benchmark: the task as specified, splits that share no operands, a strict grader."""

from __future__ import annotations

import hashlib

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.addition import ADDITION, DEFAULT_TRAIN, HELD_OUT, solution_text
from evaluation.problems import Problem, Split


def operands(problem: Problem) -> frozenset[str]:
    return frozenset(problem.prompt[0].content.split("+"))


def test_the_worked_example() -> None:
    # 4+8 = 12 carries 1; 2+7+1 = 10 carries 1; 8+0+1 = 09; so 824 + 78 = 0902.
    assert solution_text((824, 78)) == "4+8+0=12;2+7+1=10;8+0+1=09#0902"


@pytest.mark.parametrize("split", ADDITION.splits)
def test_solutions_are_right_by_integer_arithmetic(split: Split) -> None:
    for problem in ADDITION.load(split, limit=500):
        question = problem.prompt[0].content
        first, second = question.split("+")
        assert len(first) == len(second) == 3
        assert int(problem.answer) == int(first) + int(second) and len(problem.answer) == 4
        assert problem.solution is not None
        steps, _, ending = problem.solution.partition("#")
        assert ending == problem.answer
        carry = 0
        for step, x, y in zip(steps.split(";"), reversed(first), reversed(second), strict=True):
            asked, _, result = step.partition("=")
            assert asked == f"{x}+{y}+{carry}"
            assert int(result) == int(x) + int(y) + carry and len(result) == 2
            carry = int(result[0])


def test_sizes_order_and_ids() -> None:
    assert BENCHMARKS["addition"] is ADDITION
    assert [len(ADDITION.load(split)) for split in ADDITION.splits] == [DEFAULT_TRAIN, HELD_OUT, HELD_OUT]
    for split in ADDITION.splits:
        problems = ADDITION.load(split, limit=150)
        assert problems == ADDITION.load(split, limit=300)[:150], "a larger limit keeps the first ones"
        assert len({problem.id for problem in problems}) == 150
        assert {problem.split for problem in problems} == {split}


def test_no_operand_pair_is_in_two_splits_in_either_order() -> None:
    pairs = {split: {operands(p) for p in ADDITION.load(split)} for split in ADDITION.splits}
    assert len(pairs["test"]) == len(pairs["validation"]) == HELD_OUT
    assert not pairs["test"] & pairs["validation"]
    assert not pairs["train"] & (pairs["test"] | pairs["validation"])


def test_training_questions_cover_every_digit_pair_and_never_repeat() -> None:
    problems = ADDITION.load("train", limit=2_000)
    assert len({problem.id for problem in problems}) == 2_000
    units = {(p.id[2], p.id[6]) for p in problems}
    assert len(units) == 100


def test_the_held_out_sets_never_change() -> None:
    text = "\n".join(p.id for split in ("test", "validation") for p in ADDITION.load(split))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "f13e19aae05e701d"


def test_more_training_problems_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="1000000 training problems asked for, there are 999201"):
        ADDITION.load("train", limit=1_000_000)


@pytest.mark.parametrize("split", ADDITION.splits)
def test_every_gold_solution_passes(split: Split) -> None:
    for problem in ADDITION.load(split, limit=300):
        assert problem.solution is not None
        grade = ADDITION.grade(problem, problem.solution)
        assert (grade.verdict, grade.score, grade.well_formed, grade.extracted) == ("pass", 1.0, True, problem.answer)


@pytest.mark.parametrize(
    ("text", "verdict", "extracted", "well_formed"),
    [
        ("4+8+0=12;2+7+1=10;8+0+1=09#0902", "pass", "0902", True),
        ("4+8+0=11;2+7+1=10;8+0+1=09#0902", "pass", "0902", True),  # only the answer is graded
        ("#0902", "pass", "0902", False),
        ("#1111#0902", "pass", "0902", False),  # the last marker counts
        ("4+8+0=12;2+7+1=10;8+0+1=09#0901", "fail", "0901", True),
        ("4+8+0=12;2+7+1=10;8+0+1=09#902", "fail", "902", False),
        ("#0902 ", "fail", "0902 ", False),
        ("#0902#", "fail", "", False),
        ("0902", "fail", None, False),
        ("", "fail", None, False),
    ],
)
def test_grading_is_strict(text: str, verdict: str, extracted: str | None, well_formed: bool) -> None:
    problem = ADDITION.load("test")[0].model_copy(update={"answer": "0902"})
    grade = ADDITION.grade(problem, text)
    assert (grade.verdict, grade.extracted, grade.well_formed) == (verdict, extracted, well_formed)
    assert (grade.feedback is None) == (verdict == "pass")


@pytest.mark.parametrize(
    ("text", "feedback"),
    [
        ("4+8+0=12;2+7+1=10;8+0+1=09#0902", None),
        ("4+8+0=11;2+7+1=10;8+0+1=09#0902", None),  # right answers have no feedback, whatever the steps
        ("4+8+0=12;2+7+1=09;8+0+0=08#0892", "2+7+1=10"),  # the first wrong step, not the carry it spoils
        ("4+8+0=12;2+7+0=09;8+0+0=08#0892", "2+7+1=10"),  # a lost carry
        ("4+8+0=13;2+7+1=11;8+0+1=09#0913", "4+8+0=12"),
        ("4+8+0=12;2+7+1=10;8+0+1=10#1002", "8+0+1=09"),
        ("4+8+0=12;2+7+1=10;8+0+1=09#0920", "#0902"),
        ("4+8+0=12;2+7+1=10;8+0+1=09#902", "#0902"),
        ("4+8+0=12;2+7+1=10#102", "step 3 missing"),
        ("4+8+0=12;2+7+1=10;8+0+1=09;0+0+0=00#00902", "step 4 not asked"),
        ("4+8+0=12;2+7+1=10;8+0+1=09", "no #"),
        ("4+8+0=12;2+7+1=", "2+7+1=10"),
        ("", "step 1 missing"),
    ],
)
def test_feedback_names_the_first_wrong_step_from_the_question_alone(text: str, feedback: str | None) -> None:
    template = ADDITION.load("test")[0]
    question = template.prompt[0].model_copy(update={"content": "824+078"})
    problem = template.model_copy(update={"prompt": (question,), "answer": "0902", "solution": None})
    assert ADDITION.grade(problem, text).feedback == feedback
