"""Code answers graded by tests that are data, with a report in the manner of a coding site.

What the report may tell of a test that fails is a setting: by default everything of public tests and nothing but the
kind of failure of hidden ones, so that feedback used as privileged context cannot leak what is being measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluation.grading.code_answer import Judged, Shown, grade_program
from evaluation.grading.program_runs import Failure, first_failure
from evaluation.grading.program_tests import CallTest, StdinTest, read_tests
from evaluation.grading.sandbox import Limits, Sandbox, find_sandbox
from evaluation.problems import Grade, Problem

VERSION = "1"
LINE_BYTES = 64
"""Of the line that tells what one call returned, beside the value."""
LONGEST_PART = 500
"""Characters of an input or output in a report."""


def grade_by_tests(
    problem: Problem,
    text: str,
    *,
    shown: Shown = "public",
    prelude: str = "",
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
) -> Grade:
    """Passes iff the last Python code block of ``text`` passes every test of ``problem`` (see ``program_tests``).

    ``prelude`` runs before the answer, in its names (not before one that begins with ``from __future__``). Public tests
    come first and the first failure ends the run. Lenient: the same with the whole text as the program where there is
    no code block. A program that fails, ends early, or exceeds a limit is a wrong answer; a sandbox that does not start
    is ``not_scored``. Raises SandboxUnavailableError, and ValueError for tests that cannot be read.
    """
    tests = read_tests(problem)

    def judge(program: str) -> Judged:
        if prelude and "from __future__" not in program:
            program = f"{prelude}\n{program}"
        failure = first_failure(program, tests, sandbox or find_sandbox(), limits or limits_for(tests))
        return failure is None, None if failure is None else report(tests, failure, shown)

    return grade_program(text, judge, grader="code_tests", version=VERSION)


def limits_for(tests: Sequence[CallTest | StdinTest]) -> Limits:
    """The usual limits, with room for twice what must come out of one run: the calls share a run, programs do not."""
    usual = Limits()
    sizes = [len(test.expected.encode("utf-8", "replace")) for test in tests]
    calls = sum(size + LINE_BYTES for size, test in zip(sizes, tests, strict=True) if isinstance(test, CallTest))
    return replace(usual, output_bytes=max(usual.output_bytes, 2 * max(calls, *sizes, 0)))


def report(tests: Sequence[CallTest | StdinTest], failure: Failure, shown: Shown) -> str | None:
    """What to say of the first failed test, no more than ``shown`` allows."""
    if shown == "nothing":
        return None
    test = tests[failure.index]
    public = [test for test in tests if test.public]
    kind = _kind(failure)
    if shown == "verdict" or (shown == "public" and not test.public):
        passed = f" The {len(public)} examples pass." if public and not test.public else ""
        return f"{kind} on {'an example' if test.public else 'a hidden test'}.{passed}"
    place = f"example {failure.index + 1} of {len(public)}" if test.public else f"hidden test {failure.index + 1}"
    given = test.arguments if isinstance(test, CallTest) else test.given
    lines = [f"{kind} on {place}.", f"Input: {_cut(given)}"]
    lines.append(f"Output: {_cut(failure.found)}" if failure.error is None else _cut(failure.found))
    return "\n".join([*lines, f"Expected: {_cut(test.expected)}"])


def _kind(failure: Failure) -> str:
    if failure.error is None:
        return "Wrong answer"
    return failure.error if failure.error.endswith("exceeded") else "Runtime error"


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST_PART else text[:LONGEST_PART] + " …"
