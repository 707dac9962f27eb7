"""Tests that are data: comparing values and outputs, reports, cheats, and a sandbox that fails."""

from __future__ import annotations

import math

import pytest

from evaluation.grading.code_tests import grade_by_tests, report
from evaluation.grading.program_runs import Failure
from evaluation.grading.program_tests import (
    CallTest,
    StdinTest,
    dump_tests,
    literal,
    read_tests,
    same_output,
    same_value,
)
from evaluation.grading.sandbox import Limits, Outcome, Sandbox
from evaluation.problems import Grade, Message, Problem

QUICK = Limits(cpu_seconds=1, wall_seconds=5)
TESTS = (
    CallTest(function="f", arguments="[1]", expected="2", public=True),
    CallTest(function="f", arguments="[40]", expected="41"),
)


def _problem(tests: tuple[CallTest | StdinTest, ...] = TESTS) -> Problem:
    asked = (Message(role="user", content="?"),)
    return Problem(id="p", benchmark="b", split="test", prompt=asked, answer="", tests=dump_tests(tests))


def _grade(sandbox: Sandbox, code: str) -> Grade:
    return grade_by_tests(_problem(), f"```python\n{code}\n```", sandbox=sandbox, limits=QUICK)


@pytest.mark.parametrize(
    "cheat",
    [
        "class Any:\n    __eq__ = lambda self, other: True\n    __repr__ = lambda self: '2 or 41'\nf = lambda x: Any()",
        "import os\nos.write(1, b'{\"value\": \"2\"}\\n{\"value\": \"41\"}\\n')\nos._exit(0)",
        "import sys\ndef f(x):\n    sys.exit(0)",
        "import os\ndef f(x):\n    os._exit(0)",
        "import builtins\nbuiltins.repr = lambda value: '2'\nf = lambda x: x",
        "import json\njson.dumps = lambda *a, **k: '{\"value\": \"2\"}'\nf = lambda x: x",
        "import gc\ndef f(x):\n    return [o for o in gc.get_objects() if isinstance(o, dict) and 'expected' in o][0]",
        "import os, time\nif os.fork():\n    time.sleep(1)\nf = lambda x: x",
        "f = 2",
        "",
    ],
    ids=["equal to all", "forged lines", "exit", "hard exit", "repr", "dumps", "looks", "fork", "no function", "empty"],
)  # fmt: skip
def test_nothing_but_the_right_values_passes(sandbox: Sandbox, cheat: str) -> None:
    grade = _grade(sandbox, cheat)
    assert (grade.verdict, grade.score) == ("fail", 0.0)


def test_prints_and_changed_arguments_do_not_matter(sandbox: Sandbox) -> None:
    assert _grade(sandbox, "def f(x):\n    print('value', x, flush=True)\n    return x + 1").verdict == "pass"


def test_an_answer_may_say_as_much_as_is_expected_of_it_and_not_much_more(sandbox: Sandbox) -> None:
    numbers = list(range(30_000))
    calls = tuple(CallTest(function="f", arguments=f"[{n}]", expected=repr(numbers)) for n in range(3))
    assert sum(len(test.expected) for test in calls) > 8 * Limits().output_bytes
    code = "```python\ndef f(x):\n    return list(range(30_000))\n```"
    assert grade_by_tests(_problem(calls), code, sandbox=sandbox).verdict == "pass"
    text = "\n".join(map(str, numbers))
    printed = StdinTest(given="", expected=text)
    assert (
        grade_by_tests(_problem((printed,)), "```python\nfor n in range(30_000): print(n)\n```", sandbox=sandbox).score
        == 1
    )
    flood = grade_by_tests(_problem((printed,)), "```python\nwhile True: print('x' * 1000)\n```", sandbox=sandbox)
    assert flood.verdict == "fail" and flood.feedback == "output limit exceeded on a hidden test."


def test_a_sandbox_that_does_not_start_is_not_scored() -> None:
    class Broken:
        name, isolates = "broken", True

        def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
            return Outcome(False, None, b"", b"no namespaces", False, False, 0.0)

    grade = _grade(Broken(), "def f(x):\n    return x + 1")
    assert (grade.verdict, grade.score, grade.lenient) == ("not_scored", None, "not_scored")
    assert grade.error == "the sandbox failed: no namespaces"
    bare = grade_by_tests(_problem(), "no code", sandbox=Broken())
    assert bare.verdict == "fail", "no program was there to run"


@pytest.mark.parametrize(
    ("shown", "public", "hidden"),
    [
        ("nothing", None, None),
        ("verdict", "Wrong answer on an example.", "Wrong answer on a hidden test. The 1 examples pass."),
        (
            "public",
            "Wrong answer on example 1 of 1.\nInput: [1]\nOutput: 7\nExpected: 2",
            "Wrong answer on a hidden test. The 1 examples pass.",
        ),
        (
            "everything",
            "Wrong answer on example 1 of 1.\nInput: [1]\nOutput: 7\nExpected: 2",
            "Wrong answer on hidden test 2.\nInput: [40]\nOutput: 7\nExpected: 41",
        ),
    ],
)
def test_a_report_tells_what_the_setting_allows(shown, public: str | None, hidden: str | None) -> None:
    assert report(TESTS, Failure(0, "7"), shown) == public
    assert report(TESTS, Failure(1, "7"), shown) == hidden


def test_long_inputs_are_cut_in_reports() -> None:
    test = StdinTest(given="x" * 10_000, expected="y", public=True)
    told = report([test], Failure(0, "time limit exceeded", "time limit exceeded"), "public")
    assert told is not None and len(told) < 700 and told.startswith("time limit exceeded on example 1 of 1.")


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        (1, 1, True), (1, 1.0, False), (1.0, 1, True), (1.0, 1.0000001, True), (1.0, 1.001, False), (True, 1, False),
        (1, True, False), ("a", "a", True), ("1", 1, False), ([1], [1], True), ({1: [2.0]}, {1: [2]}, True),
        ({1: 2}, {1: 2, 3: 4}, False), ({1, 2}, {2, 1}, True), (None, None, True), (None, 0, False),
        (math.nan, math.nan, True), (math.inf, math.inf, True), (math.inf, 1e300, False), ([], None, False),
    ],
)  # fmt: skip
def test_equality_of_values(expected: object, found: object, equal: bool) -> None:
    assert same_value(expected, found, 0.0, False) is equal
    assert same_value([expected], (found,), 0.0, True) is equal
    assert not same_value([expected], (found,), 0.0, False)


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        ("1 2\n3\n", "1 2 \n3", True), ("1", "1.0", True), ("1.10", "1.1", True), ("1", "1.0000001", False),
        ("a b", "a  b", True), ("a\nb", "a b", False), ("1\n", "\n1\n\n", True), ("", "\n", True), 
        ("1 2", "1", False), ("YES", "yes", False),
    ],
)  # fmt: skip
def test_equality_of_outputs(expected: str, found: str, equal: bool) -> None:
    assert same_output(expected, found) is equal


def test_literals_are_read_and_nothing_is_run() -> None:
    assert literal("{'a': (1, -2.5, None), 'b': {1, 2}}") == {"a": (1, -2.5, None), "b": {1, 2}}
    assert literal("[inf, -inf]") == [math.inf, -math.inf] and literal("set()") == set()
    assert math.isnan(literal("nan"))
    for text in ("f(1)", "__import__('os')", "x", "1 +", "[set(1)]", "(" * 10_000):
        with pytest.raises(ValueError, match="is no literal"):
            literal(text)


def test_tests_that_cannot_be_read_are_refused() -> None:
    for tests in ('{"kind": "call"}', '{"kind": "other"}', "{"):
        with pytest.raises(ValueError, match="problem p: its tests cannot be read"):
            read_tests(_problem().model_copy(update={"tests": (tests,)}))
    mixed = _problem((*TESTS, StdinTest(given="", expected="")))
    with pytest.raises(ValueError, match="tests of both kinds"):
        read_tests(mixed)
    assert [test.public for test in read_tests(_problem(TESTS[::-1]))] == [True, False]
