"""Code answers judged by tests with assertions, in the sandbox, with a report in the manner of a coding site.

The answer and the tests run in two interpreters (see ``evaluation.grading.apart``): the tests call the answer through
a pipe and get plain values back, and only after the last test does their process read a random word and show it. An
answer that exits early, prints guesses, patches builtins or returns objects that equal everything fails. Where a test
hands the answer functions or objects of its own, both share an interpreter, and a program written against this very
harness can pass; and a test that calls methods of an object which the answer returned takes that object's word. A high
score on tests is evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.grading.assert_runs import AssertRun, TestResult, run_asserts
from evaluation.grading.assert_tests import AssertTest, read_assert_tests
from evaluation.grading.code_answer import Judged, Shown, grade_program
from evaluation.grading.sandbox import Limits, Sandbox, find_sandbox
from evaluation.problems import Grade, Problem

VERSION = "2"


def grade_code(
    problem: Problem,
    text: str,
    *,
    shown: Shown = "public",
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
) -> Grade:
    """Passes iff the last Python code block of ``text`` passes all of ``problem.tests``.

    Lenient: the same where there is a code block, else the whole text as a program. Programs that fail, exit early,
    run out of time or memory or flood the output are wrong answers; a sandbox that fails to start is ``not_scored``.
    Raises SandboxUnavailableError when there is no sandbox, ValueError when the problem has no tests.
    """
    if not problem.tests:
        raise ValueError(f"problem {problem.id}: no tests to grade a program by")
    tests = read_assert_tests(problem)

    def judge(program: str) -> Judged:
        ran = run_asserts(program, tests, sandbox or find_sandbox(), limits or Limits())
        return ran.passed, None if ran.passed else report(program, tests, ran, shown)

    return grade_program(text, judge, grader="code", version=VERSION)


def report(program: str, tests: Sequence[AssertTest], ran: AssertRun, shown: Shown) -> str | None:
    """What to say of a program that failed, no more than ``shown`` allows."""
    if shown == "nothing":
        return None
    failed = next((place for place, result in enumerate(ran.results) if not result.passed), None)
    if failed is None:
        return _before_the_tests(program, tests, ran, shown)
    kind = "Wrong answer" if _is_wrong_answer(ran.results[failed]) else "Runtime error"
    told = [f"{kind}.", *_counts(tests, ran)]
    if shown == "everything" or (shown == "public" and tests[failed].public):
        told += _failed(program, tests[failed], ran.results[failed])
    elif shown == "public" and kind == "Runtime error":
        # The message of an exception may hold the input of the hidden test; its type and the line do not.
        told.append((ran.results[failed].error or "").partition(":")[0] + _at(program, ran.results[failed].line))
    return "\n".join(told)


def _is_wrong_answer(result: TestResult) -> bool:
    return result.asserted is not None and result.line is None


def _before_the_tests(program: str, tests: Sequence[AssertTest], ran: AssertRun, shown: Shown) -> str:
    ended = f"{ran.ended}{_at(program, ran.line)}"
    if shown == "verdict":
        return "Runtime error." if ran.line is not None else f"{ended[0].upper()}{ended[1:]}."
    return "\n".join([ended, *_counts(tests, ran)]) if ran.results else ended


def _counts(tests: Sequence[AssertTest], ran: AssertRun) -> list[str]:
    """How many public tests passed; of hidden ones nothing."""
    public = [place for place, test in enumerate(tests) if test.public]
    passed = sum(ran.results[place].passed for place in public if place < len(ran.results))
    return [f"{passed} of {len(public)} public tests passed."] if public else []


def _failed(program: str, test: AssertTest, result: TestResult) -> list[str]:
    told = [f"Test: {test.source.strip() if result.asserted is None else f'assert {result.asserted}'}"]
    if not _is_wrong_answer(result):
        told.append(f"{result.error}{_at(program, result.line)}")
    elif result.got is not None:
        told += [f"Input: {result.call}", f"Output: {result.got}", f"Expected: {result.expected}"]
    elif result.error != "AssertionError":
        told.append(f"{result.error}")
    return told


def _at(program: str, line: int | None) -> str:
    lines = program.split("\n")
    return f" (line {line}: {lines[line - 1].strip()})" if line is not None and 0 < line <= len(lines) else ""
