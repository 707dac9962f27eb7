r"""Multiple choice: the letter in ``<answer>X</answer>``, or what free text settles on (lenient)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evaluation.grading.extraction import Found, answer_is, boxed
from evaluation.problems import Grade, Problem, Verdict

VERSION = "1"

_TAG = re.compile(r"<answer>(?P<inside>.*?)</answer>", re.DOTALL | re.IGNORECASE)
_LETTER = r"(?:\\(?:text|mathrm|textbf)\{)?[(\[*]*(?P<letter>[A-Za-z])[)\]*.:]*\}?"
_ALONE = re.compile(rf"\s*{_LETTER}\s*")
_LEADING = re.compile(rf"\s*(?:option\s+|choice\s+)?{_LETTER}(?![A-Za-z'’])", re.IGNORECASE)


def tagged(text: str) -> str | None:
    """What stands between the last ``<answer>`` and its ``</answer>``, stripped; None without a closed pair."""
    found = [*_TAG.finditer(text)]
    return found[-1]["inside"].strip() if found else None


def grade_choice(problem: Problem, text: str, *, choices: Sequence[str] = ("A", "B", "C", "D")) -> Grade:
    r"""Passes iff the last ``<answer>…</answer>`` holds the letter of ``problem.answer`` and nothing else.

    ``well_formed``: such a pair holds exactly one of ``choices``, in capitals. Lenient: the letter in the pair however
    written (``(b)``, ``B: 1.4``), else in the last ``\boxed{…}`` or after the last "answer is", else a text that is one
    letter. Raises ValueError for a problem whose answer is none of ``choices``.
    """
    if problem.answer not in choices:
        raise ValueError(f"problem {problem.id}: the answer {problem.answer!r} is none of {', '.join(choices)}")
    inside = tagged(text)
    strict = inside if inside in choices else None
    lenient = strict or _lenient(inside, text, choices)
    verdict: Verdict = "pass" if strict == problem.answer else "fail"
    return Grade(
        verdict=verdict,
        score=float(verdict == "pass"),
        grader="choice",
        version=VERSION,
        extracted=strict,
        feedback=None if verdict == "pass" else _feedback(inside, strict),
        well_formed=strict is not None,
        lenient="pass" if lenient == problem.answer else "fail",
    )


def _lenient(inside: str | None, text: str, choices: Sequence[str]) -> str | None:
    if inside is not None:
        return _letter(_LEADING.match(inside), choices)
    found: list[Found] = [form for form in (boxed(text), answer_is(text)) if form is not None]
    if found:
        return _letter(_LEADING.match(max(found, key=lambda form: form.position).text), choices)
    return _letter(_ALONE.fullmatch(text), choices)


def _letter(match: re.Match[str] | None, choices: Sequence[str]) -> str | None:
    letter = match["letter"].upper() if match else None
    return letter if letter in choices else None


def _feedback(inside: str | None, strict: str | None) -> str:
    if strict is not None:
        return f"the answer read is {strict}"
    if inside is None:
        return "no <answer>…</answer> with a letter"
    return f"<answer> holds {inside[:80]!r} and not one letter"
