"""Choices: one letter between the tags, and what counts as lenient only."""

from __future__ import annotations

import pytest

from evaluation.grading.choice import grade_choice
from evaluation.problems import Message, Problem

PROBLEM = Problem(id="1", benchmark="x", split="test", prompt=(Message(role="user", content="Which?"),), answer="B")


@pytest.mark.parametrize(
    ("text", "verdict", "lenient", "well_formed"),
    [
        ("<answer>B</answer>", "pass", "pass", True),
        ("<reasoning>A?</reasoning>\n<answer>\nB\n</answer>\n", "pass", "pass", True),
        ("<answer>A</answer> no: <answer>B</answer>", "pass", "pass", True),
        ("<answer>B</answer> no: <answer>A</answer>", "fail", "fail", True),
        ("<ANSWER>B</ANSWER>", "pass", "pass", True),
        ("<answer>b</answer>", "fail", "pass", False),
        ("<answer>(B)</answer>", "fail", "pass", False),
        ("<answer>B: 1.4</answer>", "fail", "pass", False),
        ("<answer>Option B</answer>", "fail", "pass", False),
        ("<answer>Because</answer>", "fail", "fail", False),
        ("<answer>AB</answer>", "fail", "fail", False),
        ("<answer>A or B</answer>", "fail", "fail", False),
        ("<answer></answer>", "fail", "fail", False),
        ("<answer>E</answer>", "fail", "fail", False),
        ("<answer>B", "fail", "fail", False),
        ("The answer is B.", "fail", "pass", False),
        ("The answer is (B) and not A", "fail", "pass", False),
        ("the answer is A. No, the answer is **B**", "fail", "pass", False),
        ("\\boxed{B}", "fail", "pass", False),
        ("\\boxed{\\text{B}}", "fail", "pass", False),
        ("\\boxed{A} or the answer is B", "fail", "pass", False),
        ("B", "fail", "pass", False),
        (" (b). ", "fail", "pass", False),
        ("But I do not know", "fail", "fail", False),
        ("The answer is bigger than A", "fail", "fail", False),
        ("B is wrong, so it must be C", "fail", "fail", False),
        ("", "fail", "fail", False),
    ],
)
def test_strict_and_lenient_verdicts(text: str, verdict: str, lenient: str, well_formed: bool) -> None:
    grade = grade_choice(PROBLEM, text)
    assert (grade.verdict, grade.lenient, grade.well_formed) == (verdict, lenient, well_formed)
    assert grade.score == float(verdict == "pass")
    assert (grade.feedback is None) == (verdict == "pass")
    assert grade.feedback is None or "B" not in grade.feedback.replace(text, "") or "B" in text


def test_a_problem_without_a_possible_letter_is_refused() -> None:
    with pytest.raises(ValueError, match="problem 1: the answer 'E' is none of A, B, C, D"):
        grade_choice(PROBLEM.model_copy(update={"answer": "E"}), "<answer>E</answer>")
