r"""Mathematical answers: numbers and words exactly, everything else by Math-Verify in killable processes.

The verdict that counts is the strict one (a ``\boxed{…}``, ``#### …`` or "answer is …" that the prompt asks for);
the lenient verdict, which also searches free text, is kept beside it. A grader that fails or runs out of time gives
``not_scored``, never a wrong answer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from evaluation.grading.extraction import Form, after_hashes, answer_is, boxed, strict_answer
from evaluation.grading.numeric import plain, read_number
from evaluation.grading.processes import GradingProcessDied, GradingTimeout, ProcessPool
from evaluation.problems import Grade, Problem, Verdict

RULES_VERSION = "1"
"""Changes with the rules in this module; the grade's version names Math-Verify's too."""

CPU_SECONDS = 5.0
"""Processor time for one comparison."""

PROCESSES = 2
"""Grading processes of one calling process (about 120 MB each)."""

FORMS: tuple[Form, ...] = (boxed, after_hashes, answer_is)

_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’ -]{2,}[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether two answers mean the same; ``equal`` is None when that could not be found out, and ``error`` says why."""

    equal: bool | None
    error: str | None = None


@functools.cache
def _pool() -> ProcessPool:
    return ProcessPool("evaluation.grading.math_worker", PROCESSES)


@functools.cache
def grader_version() -> str:
    """For example ``1-mv0.9.0``."""
    return f"{RULES_VERSION}-mv{version('math-verify')}"


def equal_answers(gold: str, answer: str, *, whole: bool = True, cpu_seconds: float = CPU_SECONDS) -> Equality:
    """Whether ``answer`` equals ``gold``; the order matters for inequalities and intervals, gold comes first.

    ``whole``: the answer is the whole text; otherwise Math-Verify searches it for an answer. Two plain numbers are
    equal iff they are the same number, exactly (``8.00`` = ``8``, no rounding). Words of four letters or more, and
    ``\\text{…}``, are compared as text without case: to an algebra system ``act`` and ``cat`` are the same product.
    """
    gold, answer = _tidy(gold), _tidy(answer)
    if whole:
        numbers = read_number(gold), read_number(answer)
        if numbers[0] is not None and numbers[1] is not None:
            return Equality(numbers[0] == numbers[1])
        if _is_words(gold):
            return Equality(_words(gold) == _words(answer))
    try:
        reply = _pool().ask({"gold": gold, "answer": answer, "whole": whole}, cpu_seconds=cpu_seconds)
    except GradingTimeout as error:
        return Equality(None, f"timed out: {error}")
    except GradingProcessDied as error:
        return Equality(None, str(error))
    return Equality(None, reply["error"]) if reply.get("error") else Equality(reply["equal"])


def _tidy(text: str) -> str:
    text = plain(text).strip().removesuffix(".").strip()
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


def grade_math(
    problem: Problem, text: str, *, forms: Sequence[Form] = FORMS, cpu_seconds: float = CPU_SECONDS
) -> Grade:
    """Passes iff the strict answer equals ``problem.answer``.

    ``lenient`` is the strict verdict where a strict answer is there, else whether Math-Verify finds the answer in the
    text as a whole.
    """
    strict = strict_answer(text, forms)
    answer = text if strict is None else strict
    found = equal_answers(problem.answer, answer, whole=strict is not None, cpu_seconds=cpu_seconds)
    outcome: Verdict = "not_scored" if found.equal is None else "pass" if found.equal else "fail"
    verdict: Verdict = outcome if strict is not None else "fail"
    right = verdict == "pass"
    return Grade(
        verdict=verdict,
        score=None if verdict == "not_scored" else float(right),
        grader="math_verify",
        version=grader_version(),
        extracted=strict,
        feedback=None if right or verdict == "not_scored" else _feedback(strict),
        error=found.error if verdict == "not_scored" else None,
        well_formed=strict is not None,
        lenient=outcome,
    )


def _feedback(strict: str | None) -> str:
    return "no answer in the format asked for" if strict is None else f"the answer read is {strict!r}"
