"""Running an answer against tests with assertions: two interpreters in a sandbox, believed only with a secret word."""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.grading.assert_tests import AssertTest, free_names, module_bases
from evaluation.grading.program_runs import SandboxFailedError
from evaluation.grading.sandbox import Limits, Outcome, Sandbox

_FOLDER = Path(__file__).with_name("apart")
_MODULES = ("values", "answer", "handles", "judge")
"""In the order of their imports of each other."""

_BEGIN = """
def _load(name, source):
    import sys, types
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module
for _name, _source in {sources!r}:
    _module = _load("evaluation.grading.apart." + _name, _source)
_module.main()
"""


@dataclass(frozen=True, slots=True)
class TestResult:
    """What came of one test. ``error`` and what follows describe a failed one."""

    passed: bool
    error: str | None = None
    """The exception, with its message."""
    line: int | None = None
    """The line of the answer that it came from; None for one of the tests."""
    asserted: str | None = None
    call: str | None = None
    got: str | None = None
    expected: str | None = None
    """For ``assert call == expected``: the call as text, what it gave, and what was to come."""


@dataclass(frozen=True, slots=True)
class AssertRun:
    """How an answer did. ``results`` holds the tests that were run to an end, in their order."""

    passed: bool
    results: tuple[TestResult, ...] = ()
    ended: str | None = None
    """How the run ended before the last test, in words."""
    line: int | None = None
    """The line of the answer where it failed before the first test."""


class _CannotCrossError(Exception):
    """A test hands the answer something that is no plain value."""


def run_asserts(code: str, tests: Sequence[AssertTest], sandbox: Sandbox, limits: Limits) -> AssertRun:
    """Runs ``code``, then each test to its end whatever came of those before it. Raises SandboxFailedError.

    Tests that pass the answer functions or objects of their own are run in the answer's interpreter.
    """
    try:
        return _run(code, tests, sandbox, limits, apart=True)
    except _CannotCrossError:
        return _run(code, tests, sandbox, limits, apart=False)


def _run(code: str, tests: Sequence[AssertTest], sandbox: Sandbox, limits: Limits, *, apart: bool) -> AssertRun:
    word, mark = secrets.token_hex(32).encode(), secrets.token_hex(16)
    setup = "\n".join(dict.fromkeys(test.setup for test in tests if test.setup))
    entry = next((test.entry for test in tests if test.entry), "")
    answer = json.dumps({"answer": code, "setup": setup, "apart": apart}).encode()
    sources = [test.source for test in tests]
    names, modules = sorted(free_names(sources)), sorted(module_bases(sources))
    asked = json.dumps({"sources": sources, "entry": entry, "names": names, "modules": modules, "mark": mark}).encode()
    job = f"{len(answer):020d}{len(asked):020d}".encode() + answer + asked + word
    outcome = sandbox.run(_harness(), stdin=job, limits=limits)
    if not outcome.started:
        raise SandboxFailedError(plain(outcome.stderr.decode(errors="replace").strip()) or "no message")
    return _judge(outcome, word, mark)


def _judge(outcome: Outcome, word: bytes, mark: str) -> AssertRun:
    results: list[TestResult] = []
    ended, line = _ended(outcome), None
    for told in _reports(outcome.stdout, mark):
        if "broken" in told:
            raise SandboxFailedError(told["broken"])
        if "cannot_cross" in told:
            raise _CannotCrossError(told["cannot_cross"])
        if "passed" in told:
            results.append(_result(told))
        else:
            ended = ended or told.get("ended") or _error(told["failed"], told["message"])
            line = told.get("line")
    passed = ended is None and outcome.exit_code == 0 and b"\n" + word in outcome.stdout
    if not passed and ended is None and all(result.passed for result in results):
        ended = f"the program ended early (exit code {outcome.exit_code})"
    return AssertRun(passed, tuple(results), ended, line)


def _reports(stdout: bytes, mark: str) -> list[dict[str, Any]]:
    lines = stdout.decode(errors="replace").split("\n")
    return [json.loads(line.removeprefix(mark)) for line in lines if line.startswith(mark)]


def _result(told: dict[str, Any]) -> TestResult:
    if told["passed"]:
        return TestResult(True)
    shown = {name: plain(told[name]) for name in ("asserted", "call", "got", "expected") if name in told}
    return TestResult(False, _error(told["error"], told["message"]), told.get("line"), **shown)


def _error(kind: str, message: str) -> str:
    return plain(f"{kind}: {message}" if message else kind)


def _ended(outcome: Outcome) -> str | None:
    if outcome.timed_out:
        return "the program ran out of time"
    return "the program wrote too much output" if outcome.flooded else None


_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")
_SCRATCH = re.compile(r"(/[\w.-]+)*/program-\w+")


def plain(text: str) -> str:
    """``text`` without what differs from run to run: addresses, and the names of scratch folders."""
    return _SCRATCH.sub("/tmp", _ADDRESS.sub("0x...", text))


@functools.cache
def _harness() -> str:
    return _BEGIN.format(sources=[(name, (_FOLDER / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES])
