"""The chain benchmark: the task as specified, disjoint splits, a strict grader, feedback from the question alone."""

from __future__ import annotations

import hashlib
import re

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.chain import CHAIN, DEFAULT_TRAIN, HELD_OUT, solution_text
from evaluation.problems import Problem, Split

QUESTION = re.compile(r"\d([+*]\d){3}")


def same_results(problem: Problem) -> frozenset[str]:
    """The question and the one with its first two digits exchanged."""
    text = problem.prompt[0].content
    return frozenset({text, text[2] + text[1] + text[0] + text[3:]})


def test_the_worked_example() -> None:
    # 9·7 = 63, so 3; 3 + 5 = 8; 8 + 3 = 11, so 1.
    assert solution_text("9*7+5+3") == "9*7=3;3+5=8;8+3=1#1"


@pytest.mark.parametrize("split", CHAIN.splits)
def test_solutions_are_right_by_integer_arithmetic(split: Split) -> None:
    for problem in CHAIN.load(split, limit=500):
        question = problem.prompt[0].content
        assert QUESTION.fullmatch(question) and problem.id == question
        value = expected = question[0]
        # Python's own arithmetic on the question bracketed from left to right; modulo 10 may wait until the end.
        expected = str(eval(f"((({question[:3]}){question[3:5]}){question[5:]})") % 10)
        assert problem.answer == expected
        steps, _, ending = str(problem.solution).partition("#")
        assert ending == expected
        for step, rest in zip(steps.split(";"), (question[1:3], question[3:5], question[5:]), strict=True):
            assert step.startswith(f"{value}{rest}=") and len(step) == 5
            assert int(step[-1]) == eval(step[:3]) % 10
            value = step[-1]


def test_sizes_order_and_ids() -> None:
    assert BENCHMARKS["chain"] is CHAIN
    assert [len(CHAIN.load(split)) for split in CHAIN.splits] == [DEFAULT_TRAIN, HELD_OUT, HELD_OUT]
    for split in CHAIN.splits:
        problems = CHAIN.load(split, limit=150)
        assert problems == CHAIN.load(split, limit=300)[:150], "a larger limit keeps the first ones"
        assert len({problem.id for problem in problems}) == 150
        assert {problem.split for problem in problems} == {split}


def test_no_question_is_in_two_splits_not_even_with_its_first_digits_exchanged() -> None:
    train = {p.id for p in CHAIN.load("train", limit=79_000)}
    assert len(train) == 79_000
    held = {split: [same_results(p) for p in CHAIN.load(split)] for split in ("test", "validation")}
    assert not any(train & questions for both in held.values() for questions in both)
    assert len({*held["test"], *held["validation"]}) == 2 * HELD_OUT


def test_training_questions_cover_every_fact() -> None:
    facts = {step[:3] for p in CHAIN.load("train", limit=5_000) for step in str(p.solution).split("#")[0].split(";")}
    assert len(facts) == 200


def test_the_held_out_sets_never_change() -> None:
    text = "\n".join(p.id for split in ("test", "validation") for p in CHAIN.load(split))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "3adbb78b4c001b44"


def test_more_training_problems_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"benchmark chain: 80000 training problems asked for, there are 79\d\d\d"):
        CHAIN.load("train", limit=80_000)


@pytest.mark.parametrize("split", CHAIN.splits)
def test_every_gold_solution_passes(split: Split) -> None:
    for problem in CHAIN.load(split, limit=300):
        grade = CHAIN.grade(problem, str(problem.solution))
        assert (grade.verdict, grade.score, grade.well_formed, grade.extracted) == ("pass", 1.0, True, problem.answer)
        assert grade.feedback is None


@pytest.mark.parametrize(
    ("text", "verdict", "extracted", "well_formed", "feedback"),
    [
        ("9*7=3;3+5=8;8+3=1#1", "pass", "1", True, None),
        ("9*7=4;4+5=8;8+3=1#1", "pass", "1", True, None),  # only the answer is graded
        ("#1", "pass", "1", False, None),
        ("#5#1", "pass", "1", False, None),  # the last marker counts
        ("9*7=3;3+5=7;7+3=0#0", "fail", "0", True, "3+5=8"),  # the first wrong step, not the ones it spoils
        ("9*7=2;2+5=7;7+3=0#0", "fail", "0", True, "9*7=3"),
        ("9*7=3;3+6=9;9+3=2#2", "fail", "2", True, "3+5=8"),  # a step that the question does not ask
        ("9*7=3;3+5=8;8+3=1#2", "fail", "2", True, "#1"),
        ("9*7=3;3+5=8#8", "fail", "8", False, "step 3 missing"),
        ("#8", "fail", "8", False, "step 1 missing"),
        ("9*7=3;3+5=8;8+3=1;1+1=2#2", "fail", "2", False, "step 4 not asked"),
        ("9*7=3;3+5=8;8+3=1", "fail", None, False, "no #"),
        ("nine", "fail", None, False, "9*7=3"),
        ("", "fail", None, False, "step 1 missing"),
    ],
)
def test_grading_is_strict_and_feedback_names_the_first_wrong_step(
    text: str, verdict: str, extracted: str | None, well_formed: bool, feedback: str | None
) -> None:
    template = CHAIN.load("test")[0]
    question = template.prompt[0].model_copy(update={"content": "9*7+5+3"})
    # No reference solution: the verifier works from the question.
    problem = template.model_copy(update={"prompt": (question,), "answer": "1", "solution": None})
    grade = CHAIN.grade(problem, text)
    assert (grade.verdict, grade.extracted, grade.well_formed) == (verdict, extracted, well_formed)
    assert grade.feedback == feedback
