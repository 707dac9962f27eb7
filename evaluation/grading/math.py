r"""Mathematical answers: numbers and words exactly, everything else by Math-Verify in killable processes.

The verdict that counts is the strict one (a ``\boxed{…}``, ``#### …`` or "answer is …" that the prompt asks for);
the lenient verdict, which also searches free text, is kept beside it. A grader that fails gives ``not_scored``, never
a wrong answer; but an answer on which comparing fails or takes too long, although its reference compares with itself,
is wrong: otherwise a model could leave the count by answers that stop the grader.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version

from evaluation.grading.extraction import Form, after_hashes, answer_is, boxed, strict_answer
from evaluation.grading.numeric import plain, read_number
from evaluation.grading.processes import GradingProcessDied, GradingStalled, GradingTimeout, ProcessPool
from evaluation.grading.workers import grading_workers
from evaluation.problems import Grade, Problem, Verdict

RULES_VERSION = "2"
"""Changes with the rules in this module and in ``extraction``; the grade's version names Math-Verify's too."""

CPU_SECONDS = 5.0
"""Processor time for one comparison."""

LONGEST_ANSWER = 2000
"""Characters of an answer that is read as mathematics; what is longer is no answer (and takes seconds to read)."""

SEARCHED = 20_000
"""Characters at the end of a text in which an answer is searched where none has the form asked for."""

PROBE = "7.25"
"""A plain answer: comparing an expression with itself may need no arithmetic, with this it does."""

FEEDBACK = 200
"""Characters of the answer that its feedback repeats."""

UNREADABLE = "the reference answer cannot be read as mathematics"

FORMS: tuple[Form, ...] = (boxed, after_hashes, answer_is)

_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’ -]{2,}[A-Za-z]")
_LETTER = re.compile(r"\\(?:mathrm|text|operatorname)\{([ei])\}")
_POWER_OF_TEN = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])")
_SCIENTIFIC = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<digits>\d+(?:\.\d+)?)\s*(?:\\times|\\cdot|\*|×)\s*)?"
    r"10\s*\^\s*(?:\{(?P<braced>[+-]?\d{1,6})\}|(?P<exponent>\d))"
)
_IN_A_BASE = re.compile(r"0*(?P<digits>[0-9A-Fa-f]+)_(?:\{(?P<braced>\d+)\}|(?P<base>\d+))")
_CLOCK = re.compile(r"(?P<time>\d{1,2}:\d\d) ?(?P<half>[ap]\.?m\.?)?")


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether two answers mean the same, and what went wrong in finding out.

    ``equal`` is None when the grader is to blame, False when the answer is.
    """

    equal: bool | None
    error: str | None = None


@functools.cache
def _pool() -> ProcessPool:
    return ProcessPool("evaluation.grading.math_worker", grading_workers())


@functools.cache
def grader_version() -> str:
    """For example ``2-mv0.9.0``."""
    return f"{RULES_VERSION}-mv{version('math-verify')}"


def equal_answers(gold: str, answer: str, *, whole: bool = True, cpu_seconds: float = CPU_SECONDS) -> Equality:
    """Whether ``answer`` equals ``gold``; the order matters for inequalities and intervals, gold comes first.

    ``whole``: the answer is the whole text; otherwise Math-Verify searches it for an answer. Two numbers written out
    or in scientific notation are equal iff they are the same number, exactly (``8.00`` = ``8``, no rounding). Words of
    four letters or more, and ``\\text{…}``, are compared as text without case: to an algebra system ``act`` and
    ``cat`` are the same product.
    A comparison that fails or takes longer than ``cpu_seconds`` makes the answer wrong where the reference compares
    with itself and with a plain number within the limit, and is not scored where it does not.
    """
    gold, answer = _tidy(gold), _tidy(answer) if whole else plain(answer)
    if whole:
        numbers = _number(gold), _number(answer)
        if numbers[0] is not None and numbers[1] is not None:
            return Equality(numbers[0] == numbers[1])
        if len(answer) > max(LONGEST_ANSWER, 2 * len(gold)):
            return Equality(False, f"an answer of {len(answer)} characters is not read")
        if _is_words(gold):
            return Equality(_words(gold) == _words(answer))
        if (clock := _clock(gold)) is not None:
            return Equality(_same_time(clock, _clock(answer)))
        bases = _IN_A_BASE.fullmatch(gold), _IN_A_BASE.fullmatch(answer)
        if bases[0] is not None and bases[1] is not None:
            return Equality(_digits_and_base(bases[0]) == _digits_and_base(bases[1]))
    else:
        answer = answer[-SEARCHED:]
    try:
        found = _ask(gold, answer, whole, cpu_seconds)
        if found.equal is None and found.error != UNREADABLE and _compares(gold, cpu_seconds):
            return Equality(False, f"the answer stops the comparison: {found.error}")
    except (GradingStalled, GradingProcessDied) as error:
        return Equality(None, str(error))
    return Equality(None, f"{UNREADABLE}: {gold!r}") if found.error == UNREADABLE else found


def _ask(gold: str, answer: str, whole: bool, cpu_seconds: float) -> Equality:
    """What Math-Verify says. Raises GradingStalled, and GradingProcessDied unless the process crashed by itself."""
    try:
        reply = _pool().ask({"gold": gold, "answer": answer, "whole": whole}, cpu_seconds=cpu_seconds)
    except GradingTimeout as error:
        return Equality(None, f"timed out: {error}")
    except GradingProcessDied as error:
        if not error.crashed:
            raise
        return Equality(None, str(error))
    if reply.get("unreadable"):
        return Equality(None, UNREADABLE)
    return Equality(None, reply["error"]) if reply.get("error") else Equality(reply["equal"])


@functools.lru_cache(maxsize=4096)
def _compares(gold: str, cpu_seconds: float) -> bool:
    """Whether a failure is the answer's doing: the reference equals itself, and is told from a number in time."""
    itself, number = (_ask(gold, other, True, cpu_seconds) for other in (gold, PROBE))
    return itself.equal is True and number.equal is not None


def _number(text: str) -> Decimal | None:
    """A plain number or one in scientific notation, exactly: Math-Verify takes 10^{-8} for 0."""
    match = _SCIENTIFIC.fullmatch(text)
    if match is None:
        return read_number(text)
    return Decimal(f"{match['sign']}{match['digits'] or 1}E{match['braced'] or match['exponent']}")


def _tidy(text: str) -> str:
    text = _POWER_OF_TEN.sub(r"\1\\times 10^{\2}", _LETTER.sub(r"\1", plain(text))).strip().removesuffix(".").strip()
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$")):
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            text = text[len(opening) : -len(closing)].strip()
    return text


def _is_words(text: str) -> bool:
    whole_text = _TEXT.fullmatch(text)
    if whole_text is not None:
        return re.search(r"[A-Za-z]{2}", whole_text[1]) is not None
    return _WORD.fullmatch(text) is not None


def _words(text: str) -> str:
    return " ".join(_TEXT.sub(r"\1", text).replace("\\ ", " ").casefold().split()).strip(" .!")


def _clock(text: str) -> re.Match[str] | None:
    """A time of day: with its half of the day, or a full hour, which cannot be a ratio."""
    match = _CLOCK.fullmatch(_words(text))
    return match if match is not None and (match["half"] or match["time"].endswith(":00")) else None


def _same_time(gold: re.Match[str], answer: re.Match[str] | None) -> bool:
    """The halves of the day must agree where both are given."""
    if answer is None or answer["time"] != gold["time"]:
        return False
    return not gold["half"] or not answer["half"] or answer["half"][0] == gold["half"][0]


def _digits_and_base(number: re.Match[str]) -> tuple[str, int]:
    return number["digits"].upper(), int(number["braced"] or number["base"])


def grade_math(
    problem: Problem, text: str, *, forms: Sequence[Form] = FORMS, cpu_seconds: float = CPU_SECONDS
) -> Grade:
    """Passes iff the strict answer equals ``problem.answer``.

    ``lenient`` is the strict verdict where a boxed answer is there, else whether Math-Verify finds the answer in the
    sentence that gives one, else in the text. ``error`` beside a fail: the answer stopped the comparison.
    """
    strict = strict_answer(text, forms)
    answer = text if strict is None else strict
    found = equal_answers(problem.answer, answer, whole=strict is not None, cpu_seconds=cpu_seconds)
    outcome: Verdict = "not_scored" if found.equal is None else "pass" if found.equal else "fail"
    lenient = outcome
    if strict is not None and outcome == "fail" and not found.error and not _in_box(text, strict):
        search = equal_answers(problem.answer, strict, whole=False, cpu_seconds=cpu_seconds)
        lenient = "pass" if search.equal else "fail"
    verdict: Verdict = outcome if strict is not None else "fail"
    right = verdict == "pass"
    return Grade(
        verdict=verdict,
        score=None if verdict == "not_scored" else float(right),
        grader="math_verify",
        version=grader_version(),
        extracted=strict,
        feedback=None if right or verdict == "not_scored" else _feedback(strict),
        error=found.error,
        well_formed=strict is not None,
        lenient=lenient,
    )


def _in_box(text: str, strict: str) -> bool:
    box = boxed(text)
    return box is not None and box.text == strict


def _feedback(strict: str | None) -> str:
    if strict is None:
        return "no answer in the format asked for"
    return f"the answer read is {strict[:FEEDBACK]!r}{' and so on' if len(strict) > FEEDBACK else ''}"
