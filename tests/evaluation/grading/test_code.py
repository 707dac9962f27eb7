"""Grading programs: right and wrong ones, cheats, and failures of the sandbox itself."""

from __future__ import annotations

import pytest

from evaluation.grading.code import grade_code
from evaluation.grading.sandbox import Limits, Outcome, Sandbox
from evaluation.problems import Grade, Message, Problem

TESTS = ("assert square(2) == 4", "assert square(-3) == 9\nassert square(0) == 0")
QUICK = Limits(cpu_seconds=1, wall_seconds=20)


def _problem(tests: tuple[str, ...] | None = TESTS) -> Problem:
    return Problem(
        id="p", benchmark="b", split="test", prompt=(Message(role="user", content="?"),), answer="", tests=tests
    )


def _grade(sandbox: Sandbox, code: str, tests: tuple[str, ...] = TESTS) -> Grade:
    return grade_code(_problem(tests), f"Here it is.\n```python\n{code}\n```\n", sandbox=sandbox, limits=QUICK)


def test_a_right_program_passes(sandbox: Sandbox) -> None:
    grade = _grade(sandbox, "def square(x):\n    return x * x")
    assert (grade.verdict, grade.score, grade.lenient, grade.well_formed) == ("pass", 1.0, "pass", True)
    assert grade.feedback is None and grade.error is None


def test_chatter_and_a_main_block_do_not_matter(sandbox: Sandbox) -> None:
    code = "print('hello')\ndef square(x):\n    print(x)\n    return x * x\nif __name__ == '__main__':\n    input()"
    assert _grade(sandbox, code).verdict == "pass"


@pytest.mark.parametrize(
    ("code", "feedback"),
    [
        ("def square(x):\n    return x + x", "assert square(-3) == 9"),
        ("def cube(x):\n    return x", "NameError"),
        ("def square(x:\n", "SyntaxError"),
        ("def square(x):\n    while True: pass", "out of time"),
        ("def square(x):\n    print('x' * 10**7)\n    return x * x", "too much output"),
        ("x = bytearray(4 << 30)", "MemoryError"),
    ],
)
def test_wrong_programs_fail_with_the_reason(sandbox: Sandbox, code: str, feedback: str) -> None:
    grade = _grade(sandbox, code)
    assert (grade.verdict, grade.score, grade.error) == ("fail", 0.0, None)
    assert grade.feedback is not None and feedback in grade.feedback


CHEATS = {
    "exit": "import sys\nsys.exit(0)",
    "hard exit": "import os\nos._exit(0)",
    "exit in the function": "def square(x):\n    import os\n    os._exit(0)",
    "exit at collection": "import atexit, os\natexit.register(lambda: os._exit(0))\nraise SystemExit(0)",
    "swallowed": "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\nimport os\nos._exit(0)",
    "guesses": "import os\nfor n in range(16): print(f'{n:x}' * 64)\nos._exit(0)",
    "own source": (
        "import os, sys\n"
        "for place in [sys.argv[0], '/program.py', '/proc/self/cmdline', '/proc/self/environ']:\n"
        "    try: print(open(place, errors='replace').read()[-64:])\n"
        "    except OSError: pass\n"
        "os._exit(0)"
    ),
    "frames": (
        "import os, sys\n"
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    for scope in (frame.f_locals, frame.f_globals):\n"
        "        for value in list(scope.values()):\n"
        "            if isinstance(value, (str, bytes)) and len(value) == 64: print(value)\n"
        "    frame = frame.f_back\n"
        "os._exit(0)"
    ),
    "standard input": "import os, sys\nprint(sys.stdin.read()[-64:])\nos._exit(0)",
    "closed output": "import os\nos.close(1)\nos._exit(0)",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_fail(sandbox: Sandbox, cheat: str) -> None:
    assert _grade(sandbox, CHEATS[cheat]).verdict == "fail"


def test_the_last_code_block_counts(sandbox: Sandbox) -> None:
    text = "```python\ndef square(x): return 0\n```\nno:\n```python\ndef square(x): return x * x\n```"
    assert grade_code(_problem(), text, sandbox=sandbox, limits=QUICK).verdict == "pass"


def test_a_bare_program_is_only_lenient(sandbox: Sandbox) -> None:
    grade = grade_code(_problem(), "def square(x): return x * x", sandbox=sandbox, limits=QUICK)
    assert (grade.verdict, grade.lenient, grade.well_formed) == ("fail", "pass", False)
    prose = grade_code(_problem(), "I would multiply it by itself.", sandbox=sandbox, limits=QUICK)
    assert (prose.verdict, prose.lenient, prose.well_formed) == ("fail", "fail", False)


class _BrokenSandbox:
    name = "broken"
    isolates = True

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        return Outcome(False, 1, b"", b"no permission to create a namespace", False, False, 0.0)


def test_a_sandbox_that_does_not_start_is_not_a_wrong_answer() -> None:
    grade = grade_code(_problem(), "```\ndef square(x): return x * x\n```", sandbox=_BrokenSandbox())
    assert (grade.verdict, grade.score) == ("not_scored", None)
    assert grade.error == "the sandbox failed: no permission to create a namespace"


def test_a_problem_without_tests_is_refused() -> None:
    with pytest.raises(ValueError, match="problem p: no tests"):
        grade_code(_problem(None), "x")
