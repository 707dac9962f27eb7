"""Exact graders: the answer is what follows a marker, or the last number of the text; nothing else is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable

from evaluation.problems import Grade, Problem

VERSION = "1"

_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")


def after_last(text: str, marker: str) -> str | None:
    """What follows the last ``marker`` in ``text``, unchanged; None without a marker."""
    return text.rpartition(marker)[2] if marker in text else None


def last_number(text: str) -> str | None:
    """The last number written in digits, in canonical form: no thousands commas, no zeros after the point.

    ``"59 + 63 = 122."`` gives "122", ``"9,500.00"`` gives "9500", ``"1.50"`` gives "1.50"; None without a number.
    Digits inside a word ("x2") are not numbers.
    """
    found = _NUMBER.findall(text)
    if not found:
        return None
    whole, point, fraction = found[-1].replace(",", "").partition(".")
    return whole if not fraction.strip("0") else f"{whole}{point}{fraction}"


def grade_after_marker(
    problem: Problem,
    text: str,
    *,
    marker: str,
    form: re.Pattern[str],
    explain: Callable[[str], str] | None = None,
) -> Grade:
    """Passes iff the text after the last ``marker`` equals ``problem.answer`` character by character.

    ``form`` is the answer format asked for: ``well_formed`` says whether the whole text matches it. ``explain`` turns
    the text of a wrong answer into its feedback; without it the feedback names the answer that was read.
    """
    extracted = after_last(text, marker)
    grade = _grade(problem, extracted, grader="exact_after_marker", well_formed=form.fullmatch(text) is not None)
    return grade if explain is None or grade.verdict == "pass" else grade.model_copy(update={"feedback": explain(text)})


def grade_last_integer(problem: Problem, text: str) -> Grade:
    """Passes iff the last number of the text, as ``last_number`` reads it, equals ``problem.answer``.

    Only the last number counts: an answer that goes on to another number fails even when the right one came earlier.
    ``well_formed`` says whether that number is an integer.
    """
    extracted = last_number(text)
    well_formed = extracted is not None and "." not in extracted
    return _grade(problem, extracted, grader="exact_last_integer", well_formed=well_formed)


def _grade(problem: Problem, extracted: str | None, *, grader: str, well_formed: bool) -> Grade:
    right = extracted == problem.answer
    feedback = None if right else f"the answer read is {extracted!r}" if extracted is not None else "no answer found"
    return Grade(
        verdict="pass" if right else "fail",
        score=float(right),
        grader=grader,
        version=VERSION,
        extracted=extracted,
        feedback=feedback,
        well_formed=well_formed,
    )
