"""Answers that are right only character by character."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.grading.extraction import Form, strict_answer
from evaluation.problems import Grade, Problem

VERSION = "1"


def grade_text(problem: Problem, text: str, *, forms: Sequence[Form]) -> Grade:
    """Passes iff the strict answer is ``problem.answer``, up to white space around it.

    There is no lenient reading: free text that merely holds the answer is not an answer.
    """
    found = strict_answer(text, forms)
    right = found is not None and found.strip() == problem.answer.strip()
    read = "no answer in the format asked for" if found is None else f"the answer read is {found!r}"
    return Grade(
        verdict="pass" if right else "fail",
        score=float(right),
        grader="text",
        version=VERSION,
        extracted=found,
        feedback=None if right else read,
        well_formed=found is not None,
    )
