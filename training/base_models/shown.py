"""Each kind of context for one problem and the base's own attempts at it, as the table of contexts shows them.

No torch here. Every kind is a list of blocks in the model's language; None where the kind cannot be had: feedback
needs an attempt that failed, a peer's success one that passed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evaluation.problems import Grade, Problem
from training.base_models.language import CONTEXT_LANGUAGE as LANGUAGE
from training.contexts.language import Block


@dataclass(frozen=True, slots=True)
class Attempt:
    text: str
    grade: Grade


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, two others for what is irrelevant to it, attempts at it, and critiques of the first failed one.

    ``critique`` is written without help, ``informed_critique`` with the solution in view.
    """

    problem: Problem
    others: tuple[Problem, Problem]
    attempts: tuple[Attempt, ...]
    critique: str | None = None
    informed_critique: str | None = None

    @property
    def solution(self) -> str:
        return self.problem.solution or ""

    @property
    def success(self) -> str | None:
        """The first attempt that passed."""
        return next((attempt.text for attempt in self.attempts if attempt.grade.verdict == "pass"), None)

    @property
    def failure(self) -> Attempt | None:
        """The first attempt that failed."""
        return next((attempt for attempt in self.attempts if attempt.grade.verdict == "fail"), None)


def critique_request(case: Case, *, informed: bool) -> str | None:
    """The context that asks for a critique of the first failed attempt, with the solution in view if ``informed``."""
    if case.failure is None:
        return None
    blocks: list[Block] = [("solution", case.solution)] if informed else []
    return LANGUAGE.compose([*blocks, ("critique_request", case.failure.text)])


def shown(kind: str, case: Case) -> str | None:
    """The context of ``kind`` for ``case``; None where it cannot be had."""
    blocks = SHOWN[kind](case)
    return None if blocks is None or any(not text for _, text in blocks) else LANGUAGE.compose(blocks)


def _half(case: Case) -> str:
    return case.solution[: len(case.solution) // 2]


def _facts(case: Case) -> str:
    rows = [
        row for solution in (case.solution, *(other.solution or "" for other in case.others)) for row in _rows(solution)
    ]
    rows = [*dict.fromkeys(rows)]
    random.Random(f"facts/{case.problem.id}").shuffle(rows)
    return LANGUAGE.facts(rows)


def _rows(solution: str) -> tuple[str, ...]:
    return LANGUAGE.steps(solution)


def _failure(case: Case) -> list[Block] | None:
    return None if case.failure is None else [("attempt", case.failure.text)]


def _feedback(case: Case) -> list[Block] | None:
    return None if case.failure is None else [("feedback", case.failure.grade.feedback or "")]


def _critique(case: Case) -> list[Block] | None:
    return None if case.critique is None else [("critique", case.critique)]


def _informed_critique(case: Case) -> list[Block] | None:
    return None if case.informed_critique is None else [("critique", case.informed_critique)]


def _success(case: Case) -> list[Block] | None:
    return None if case.success is None else [("peer_success", case.success)]


def _both(*parts: Callable[[Case], list[Block] | None]) -> Callable[[Case], list[Block] | None]:
    def joined(case: Case) -> list[Block] | None:
        made = [part(case) for part in parts]
        return None if None in made else [block for blocks in made for block in blocks or ()]

    return joined


def _guidance(case: Case) -> list[Block] | None:
    """DO the first step that the failed attempt has wrong, AVOID what it has there."""
    if case.failure is None:
        return None
    differing = [
        (right, wrong)
        for right, wrong in zip(_rows(case.solution), _rows(case.failure.text), strict=False)
        if right != wrong
    ]
    return [("guidance", LANGUAGE.guidance([differing[0][0]], [differing[0][1]]))] if differing else None


def _avoid(case: Case) -> list[Block] | None:
    if case.failure is None:
        return None
    wrong = [step for step in _rows(case.failure.text) if step not in _rows(case.solution)]
    return [("guidance", LANGUAGE.guidance([], wrong))] if wrong else None


SHOWN: Mapping[str, Callable[[Case], list[Block] | None]] = MappingProxyType(
    {
        "solution": lambda case: [("solution", case.solution)],
        "answer": lambda case: [("answer", case.problem.answer)],
        "partial_solution, half": lambda case: [("partial_solution", LANGUAGE.partial(_half(case)))],
        "partial_solution, half, answer kept": lambda case: [
            ("partial_solution", LANGUAGE.partial(_half(case), case.problem.answer))
        ],
        "facts, with 6 irrelevant rows": lambda case: [("facts", _facts(case))],
        "guidance: every step to do": lambda case: [("guidance", LANGUAGE.guidance(_rows(case.solution), []))],
        "guidance: first wrong step, do and avoid": _guidance,
        "guidance: wrong steps to avoid": _avoid,
        "demonstration, own reference": lambda case: [("demonstration", case.solution)],
        "demonstration, another problem": lambda case: [
            ("demonstration", LANGUAGE.worked_example(case.others[0].id, case.others[0].solution or ""))
        ],
        "peer_success": _success,
        "peer_success + feedback": _both(_success, _feedback),
        "peer_success + attempt + feedback": _both(_success, _failure, _feedback),
        "attempt (failed)": _failure,
        "feedback": _feedback,
        "attempt + feedback": _both(_failure, _feedback),
        "critique, its own": _critique,
        "attempt + critique": _both(_failure, _critique),
        "critique, with the solution in view": _informed_critique,
    }
)
"""What each row of the table shows."""
