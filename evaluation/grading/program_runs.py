"""Running an answer against tests that are data: the sandbox runs it, this process compares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.grading.program_tests import CallTest, StdinTest, literal, same_output, same_value
from evaluation.grading.sandbox import Limits, Outcome, Sandbox

# The answer is executed as a module; each call gets arguments of its own, made anew from their text, and what it
# returns is written as a literal, one line a call, to a descriptor that prints of the answer do not reach.
_CALLS = """
def _run():
    import json, math, os, sys
    data = b""
    while part := os.read(0, 1 << 16):
        data += part
    job = json.loads(data)
    shown = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    sink = os.open(os.devnull, os.O_RDWR)
    os.dup2(sink, 0); os.dup2(sink, 1)
    def told(**what):
        shown.write(json.dumps(what) + "\\n")
        shown.flush()
    namespace = {"__name__": "answer", "__builtins__": __builtins__}
    try:
        exec(compile(job["answer"], "answer.py", "exec"), namespace)
        function = eval(job["function"], namespace)
    except BaseException as error:
        told(error=f"{type(error).__name__}: {error}"[:500])
        os._exit(1)
    names = {"inf": math.inf, "nan": math.nan, "set": set, "__builtins__": {}}
    for text in job["arguments"]:
        try:
            told(value=repr(function(*eval(text, dict(names)))))
        except BaseException as error:
            told(error=f"{type(error).__name__}: {error}"[:500])
            os._exit(1)
    os._exit(0)
_run()
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that an answer fails, in the order of the tests."""

    index: int
    found: str
    """What came out, or how the run ended, in words."""
    error: str | None = None
    """How the run ended, where it did not end well."""


class SandboxFailedError(RuntimeError):
    """The sandbox did not start the program: nothing is known of the answer."""


def first_failure(code: str, tests: Sequence[CallTest | StdinTest], sandbox: Sandbox, limits: Limits) -> Failure | None:
    """The first failed test; None when all pass. Raises SandboxFailedError."""
    calls = [test for test in tests if isinstance(test, CallTest)]
    if calls:
        return _calls(code, calls, sandbox, limits)
    for index, test in enumerate(tests):
        assert isinstance(test, StdinTest)
        outcome = sandbox.run(code, stdin=test.given.encode("utf-8", "replace"), limits=limits)
        ended = _ended(outcome)
        if ended is not None:
            return Failure(index, ended, ended)
        found = outcome.stdout.decode(errors="replace")
        if not same_output(test.expected, found):
            return Failure(index, found.strip() or "nothing")
    return None


def _calls(code: str, tests: Sequence[CallTest], sandbox: Sandbox, limits: Limits) -> Failure | None:
    for function in dict.fromkeys(test.function for test in tests):
        chosen = [(index, test) for index, test in enumerate(tests) if test.function == function]
        job = {"answer": code, "function": function, "arguments": [test.arguments for _, test in chosen]}
        outcome = sandbox.run(_CALLS, stdin=json.dumps(job).encode(), limits=limits)
        ended = _ended(outcome)
        told = outcome.stdout.decode(errors="replace").splitlines()
        for place, (index, test) in enumerate(chosen):
            found = _told(told[place]) if place < len(told) else ("error", ended or "the program ended early")
            if found[0] == "error":
                return Failure(index, found[1], found[1])
            if not _equal(test, found[1]):
                return Failure(index, found[1])
    return None


def _told(line: str) -> tuple[str, str]:
    try:
        said = json.loads(line)
        return ("value", str(said["value"])) if "value" in said else ("error", str(said["error"]))
    except (ValueError, KeyError, TypeError):
        return "error", "the program wrote to the results"


def _equal(test: CallTest, found: str) -> bool:
    expected = literal(test.expected)
    try:
        value = literal(found)
    except ValueError:
        return False
    return same_value(expected, value, test.tolerance, test.sequences_are_equal)


def _ended(outcome: Outcome) -> str | None:
    """How a run went wrong, in words; None for one that ended by itself and well."""
    if not outcome.started:
        raise SandboxFailedError(outcome.stderr.decode(errors="replace").strip() or "no message")
    if outcome.timed_out:
        return "time limit exceeded"
    if outcome.flooded:
        return "output limit exceeded"
    if outcome.exit_code != 0:
        lines = outcome.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else f"exit code {outcome.exit_code}"
    return None


def returned(code: str, function: str, arguments: Sequence[str], sandbox: Sandbox, limits: Limits) -> list[str]:
    """What ``function`` of a program that is right returns for each of the arguments, as literals.

    Raises ValueError where it fails or returns no literal, SandboxFailedError.
    """
    job = {"answer": code, "function": function, "arguments": list(arguments)}
    outcome = sandbox.run(_CALLS, stdin=json.dumps(job).encode(), limits=limits)
    ended = _ended(outcome)
    told = [_told(line) for line in outcome.stdout.decode(errors="replace").splitlines()]
    for index, (kind, value) in enumerate(told):
        if kind == "error":
            raise ValueError(f"call {index + 1}: {value}")
        literal(value)
    if ended is not None or len(told) != len(arguments):
        raise ValueError(ended or f"{len(told)} results of {len(arguments)} calls")
    return [value for _, value in told]
