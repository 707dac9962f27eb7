"""Reading numbers, and the number grader's strict and lenient verdicts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from evaluation.grading.extraction import after_hashes, answer_is, boxed
from evaluation.grading.numeric import grade_number, last_number, leading_number, read_number, written
from evaluation.problems import Message, Problem


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9{,}500", "9500"),
        ("8,000", "8000"),
        ("8.00", "8"),
        ("1.000", "1"),
        ("1,234,567", "1234567"),
        ("70 000", "70000"),
        ("12 345 678", "12345678"),
        ("70\\,000", "70000"),
        ("70\u202f000", "70000"),
        ("\\$18", "18"),
        ("$5$", "5"),
        ("\u22125", "-5"),
        ("+3", "3"),
        (".5", "0.5"),
        ("6.", "6"),
        ("007", "7"),
        ("1" * 5000, "1" * 5000),
    ],
)
def test_whole_texts_that_are_numbers(text: str, number: str) -> None:
    assert read_number(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "1,00", "1,2345", "12,34", "70 00", "3 4", "1/2", "5 cm", "50%", "1e3", "x", "2x", "1.2.3", "１２"],
)
def test_whole_texts_that_are_not(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("$18 per day.", "18"),
        ("**18**", "18"),
        ("18\\text{ dollars}", "18"),
        ("18.", "18"),
        ("-18 dollars", "-18"),
        ("1,800 (in dollars)", "1800"),
        ("50%", "50"),
        ("18/5", None),
        ("3 + 4 = 7", None),
        ("2**3", None),
        ("10-12", None),
        ("about 5", None),
        ("5 of the 7 days", None),
        ("", None),
    ],
)
def test_leading_numbers(text: str, number: str | None) -> None:
    assert leading_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("first 3, then 4.", "4"),
        ("10-12", "12"),
        ("it falls to -12", "-12"),
        ("= $1,234.50!", "1234.50"),
        ("12,34", "34"),
        ("x2", None),
        ("version 3.14.15", "3.14"),
        ("18th", "18"),
        ("none", None),
    ],
)
def test_last_numbers(text: str, number: str | None) -> None:
    assert last_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("number", "text"), [("8.00", "8"), ("-0", "0"), ("0.00", "0"), ("100", "100"), ("1.50", "1.5"), ("1E+3", "1000")]
)
def test_numbers_are_written_shortest(number: str, text: str) -> None:
    assert written(Decimal(number)) == text


def _problem(answer: str) -> Problem:
    return Problem(id="p1", benchmark="b", split="test", prompt=(Message(role="user", content="?"),), answer=answer)


FORMS = (after_hashes, boxed, answer_is)


@pytest.mark.parametrize(
    ("text", "strict", "lenient", "well_formed"),
    [
        ("48 + 24 = 72\n#### 72", "pass", "pass", True),
        ("so \\boxed{72}", "pass", "pass", True),
        ("The answer is $72.00.", "pass", "pass", True),
        ("**Answer:** the answer is: **72**", "pass", "pass", True),
        ("48 + 24 = 72", "fail", "pass", False),
        ("48 + 24 = 72 clips", "fail", "pass", False),
        ("#### 71", "fail", "fail", True),
        ("72, that is #### 71", "fail", "fail", True),
        ("#### 72\nLet us check: 48 + 24 = 71", "pass", "pass", True),
        ("#### 71\nThe answer is 72", "pass", "pass", True),
        ("#### 70 + 2", "fail", "fail", False),
        ("####", "fail", "fail", False),
        ("", "fail", "fail", False),
        ("no idea", "fail", "fail", False),
    ],
)
def test_strict_and_lenient_verdicts_are_kept_apart(text: str, strict: str, lenient: str, well_formed: bool) -> None:
    grade = grade_number(_problem("72"), text, FORMS)
    assert (grade.verdict, grade.lenient, grade.well_formed) == (strict, lenient, well_formed)
    assert grade.score == (1.0 if strict == "pass" else 0.0)
    assert grade.error is None


def test_extracted_shows_the_number_read() -> None:
    assert grade_number(_problem("9500"), "#### $9,500.00", FORMS).extracted == "9500"
    assert grade_number(_problem("9500"), "9500", FORMS).extracted is None


def test_a_reference_that_is_no_number_is_an_error_and_not_a_wrong_answer() -> None:
    with pytest.raises(ValueError, match="problem p1: the answer 'many' is not a number"):
        grade_number(_problem("many"), "#### 3", FORMS)
