"""What all graders of code share: the answer's program, what a report may tell, and the grade made of a judgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from evaluation.grading.extraction import fenced_code
from evaluation.grading.program_runs import SandboxFailedError
from evaluation.problems import Grade, Verdict

Shown = Literal["nothing", "verdict", "public", "everything"]
"""What a report tells: nothing; the kind of failure; also a failed public test; also a failed hidden one."""

Judged = tuple[bool, str | None]
"""Whether a program passes, and the report on one that does not."""


def grade_program(text: str, judge: Callable[[str], Judged], *, grader: str, version: str) -> Grade:
    """The grade of the last Python code block of ``text`` by ``judge``, which may raise SandboxFailedError.

    Lenient: the same where there is a code block, else the whole text as a program. A sandbox that failed to start says
    nothing of the program: ``not_scored``. Text without a code block is a wrong answer all the same.
    """
    code = fenced_code(text)
    judged: Verdict = "not_scored"
    feedback, error = None, None
    try:
        passed, feedback = judge(text if code is None else code)
        judged = "pass" if passed else "fail"
    except SandboxFailedError as reason:
        error = f"the sandbox failed: {reason}"
    verdict: Verdict = judged
    if code is None:
        verdict, feedback, error = "fail", "no Python code block", None
    return Grade(
        verdict=verdict,
        score=None if verdict == "not_scored" else float(verdict == "pass"),
        grader=grader,
        version=version,
        extracted=code,
        feedback=feedback,
        error=error,
        well_formed=code is not None,
        lenient=judged,
    )
