"""Reading numbers as people and models write them: thousands separators, currency, LaTeX spacing, ``.00``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from evaluation.grading.extraction import Form, strict_answer
from evaluation.problems import Grade, Problem

VERSION = "1"

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_LEADING = re.compile(rf"(?P<sign>[+-]?)\s*(?P<currency>[$£€]?)\s*(?P<digits>{_DIGITS})\.?(?P<rest>.*)", re.DOTALL)
_REST_WITHOUT_NUMBERS = re.compile(r"(?!\w)[^0-9+\-*/^=<>]*|\s*[A-Za-z][^0-9+\-*/^=<>]*")
_GROUPED_BY_SPACES = re.compile(r"[+-]?[0-9]{1,3}(?: [0-9]{3})+(?:\.[0-9]+)?")
_BOLD = re.compile(r"(?<![0-9])\*\*|\*\*(?![0-9])")
_SIGNED = re.compile(rf"(?<![\w.])(?P<sign>[+-]?)[$£€]?(?P<digits>{_DIGITS})(?![0-9])")


def plain(text: str) -> str:
    """``text`` with the typography around digits undone, by meaning unchanged.

    LaTeX braces round a comma (``9{,}500``), thin spaces and ``\\!`` between digits, ``\\$``, the Unicode minus and
    non-breaking spaces are written plainly: ``9,500``, ``70000``, ``$``, ``-``.
    """
    text = text.replace("{,}", ",").replace("\\$", "$").replace("\u2212", "-").replace("\u00a0", " ")
    return re.sub(r"(?<=[0-9,])(?:\\[,!;: ]|\u202f|\u2009)+(?=[0-9]{3}(?![0-9]))", "", text)


def read_number(text: str) -> Decimal | None:
    """The number that ``text`` is, exactly; None when it is anything else.

    ``9{,}500``, ``8,000``, ``70 000`` and ``8.00`` are 9500, 8000, 70000 and 8; ``1,00``, ``1/2``, ``5 cm`` and
    ``50%`` are not plain numbers.
    """
    text = plain(text).strip().strip("$").strip()
    if _GROUPED_BY_SPACES.fullmatch(text):
        text = text.replace(" ", "")
    match = _LEADING.fullmatch(text)
    if match is None or match["rest"].strip():
        return None
    return Decimal(match["sign"] + match["digits"].replace(",", ""))


def leading_number(text: str) -> Decimal | None:
    """The number ``text`` begins with, when what follows holds no further number and no operator.

    ``$18 per day.`` and ``**18**`` are 18; ``18/5``, ``3 + 4 = 7`` and ``about 5`` give None.
    """
    match = _LEADING.fullmatch(_BOLD.sub("", plain(text)).strip())
    if match is None or _REST_WITHOUT_NUMBERS.fullmatch(match["rest"]) is None:
        return None
    return Decimal(match["sign"] + match["digits"].replace(",", ""))


def last_number(text: str) -> Decimal | None:
    """The last number anywhere in ``text``; a hyphen directly after a digit or letter is not a sign."""
    found = [*_SIGNED.finditer(plain(text))]
    if not found:
        return None
    return Decimal(found[-1]["sign"] + found[-1]["digits"].replace(",", ""))


def written(number: Decimal) -> str:
    """The shortest plain way to write ``number``: ``8.00`` is ``8``, ``-0`` is ``0``."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "", "-") else text


def grade_number(problem: Problem, text: str, forms: Sequence[Form]) -> Grade:
    """Passes iff the strictly extracted answer begins with the number ``problem.answer`` (exactly, ``8.00`` = ``8``).

    Strict: the last place in ``text`` where one of ``forms`` stands, read by ``leading_number``; this is the verdict.
    Lenient: the same where it is there, else the last number of the text. ValueError when the answer is no number.
    """
    gold = read_number(problem.answer)
    if gold is None:
        raise ValueError(f"problem {problem.id}: the answer {problem.answer!r} is not a number")
    strict_text = strict_answer(text, forms)
    strict = None if strict_text is None else leading_number(strict_text)
    lenient = strict if strict is not None else last_number(text)
    right = strict == gold
    read = f"the answer read is {written(strict)}" if strict is not None else "no answer in the format asked for"
    return Grade(
        verdict="pass" if right else "fail",
        score=float(right),
        grader="number",
        version=VERSION,
        extracted=None if strict is None else written(strict),
        feedback=None if right else read,
        well_formed=strict is not None,
        lenient="pass" if lenient == gold else "fail",
    )
