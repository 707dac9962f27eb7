"""Answers that try to pass without being right: tests and answer are in two interpreters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from evaluation.grading.assert_runs import AssertRun, plain, run_asserts
from evaluation.grading.assert_tests import AssertTest, dump_assert_tests, free_names, read_assert_tests
from evaluation.grading.code import grade_code
from evaluation.grading.sandbox import Limits, Outcome, Sandbox
from evaluation.problems import Message, Problem

QUICK = Limits(cpu_seconds=2, wall_seconds=30)


@pytest.fixture(params=["sandbox", "sandlock"])
def each(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


def _run(sandbox: Sandbox, code: str, *sources: str, setup: str = "", entry: str = "") -> AssertRun:
    tests = [AssertTest(source=source, setup=setup, entry=entry) for source in sources]
    return run_asserts(code, tests, sandbox, QUICK)


FOUR = "assert square(2) == 4"
READS_ITS_PARENT = """
import os, re
def look():
    parent, found = os.getppid(), b""
    for place in (f"/proc/{parent}/fd/0", f"/proc/{parent}/environ", "/dev/stdin"):
        try: found += open(place, "rb").read()
        except OSError: pass
    try:
        with open(f"/proc/{parent}/maps") as lines, open(f"/proc/{parent}/mem", "rb") as memory:
            for line in lines:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                if "rw" in line:
                    memory.seek(begin)
                    found += memory.read(end - begin)
    except OSError:
        pass
    return found
def square(x):
    return x * x if re.search(b"asse" + b"rt square", look()) else 5
"""

CHEATS = {
    "equals everything": (
        "class Any:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef square(x): return Any()",
        (FOUR, "assert 4 == square(2)", "assert [square(2)] == [4]", "assert square(2) in [4]"),
    ),
    "a list that equals everything": (
        "class L(list):\n    def __eq__(self, other): return True\ndef square(x): return L()",
        ("assert square(2) == [4]",),
    ),
    "close to everything": (
        "class Any:\n    def __sub__(self, other): return 0.0\n    def __abs__(self): return 0.0\n"
        "    def __lt__(self, other): return True\n    def __float__(self): return 4.0\n    __rsub__ = __sub__\n"
        "def square(x): return Any()",
        ("assert abs(square(2) - 4) < 1e-6", "assert square(2) < 5", "assert abs(4 - square(2)) < 1e-6"),
    ),
    "holds everything": (
        "class Any:\n    def __contains__(self, item): return True\ndef square(x): return Any()",
        ("assert 4 in square(2)",),
    ),
    "a builtin of its own": (
        "def set(x): return 0\ndef abs(x): return 0\ndef len(x): return 0\ndef square(x): return []",
        ("assert set(square(2)) == set([4])", "assert len(square(2)) == len([4])"),
    ),
    "builtins patched": (
        "import builtins, math\nbuiltins.AssertionError = type('E', (Exception,), {'__init__': lambda *a: None})\n"
        "builtins.set = builtins.abs = lambda *a: 0\nmath.isclose = lambda *a, **k: True\n"
        "def square(x): return 5",
        (FOUR, "assert math.isclose(square(2), 4)", "assert set([square(2)]) == {4}"),
    ),
    "a module of its own": (
        "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef square(x): return 5",
        ("assert math.isclose(square(2), 4)", "import math\nassert math.isclose(square(2), 4)"),
    ),
    "a module in the scratch folder": (
        "import os\n"
        "for name in ('colorsys', 'statistics'):\n"
        "    open(name + '.py', 'w').write('mean = lambda *a: 4')\n"
        "def square(x): return 5",
        (
            "import colorsys\nassert colorsys.mean([square(2)]) == 4",
            "import statistics as s\nassert s.mean([square(2)]) == 4",
        ),
    ),
    "frames": (
        "import gc, sys\nfound = {}\n"
        "for thing in gc.get_objects():\n"
        "    if isinstance(thing, dict) and 'sources' in thing: found = thing\n"
        "frame = sys._getframe()\n"
        "while frame:\n    found = {**found, **{k: v for k, v in frame.f_locals.items() if k == 'sources'}}\n"
        "    frame = frame.f_back\n"
        "if found: square = lambda x: x * x",
        (FOUR,),
    ),
    "the parent's memory": (READS_ITS_PARENT, (FOUR,)),
    "kills the parent": (
        "import os, signal\ndef square(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 4",
        ("assert square(2) != 4",),
    ),
    "kills the group": (
        "import os, signal\nos.killpg(0, signal.SIGKILL)\ndef square(x): return 5",
        (FOUR,),
    ),
    "closes everything": ("import os\nos.closerange(0, 256)\ndef square(x): return 5", (FOUR,)),
    "answers for the tests": (
        "import os, json\n"
        "for fd in range(3, 20):\n"
        '    try: os.write(fd, b\'{"names": {"square": 4}}\\n{"value": 4}\\n{"passed": true}\\n\')\n'
        "    except OSError: pass\n"
        "def square(x): return 5",
        ("assert square(3) == 9",),
    ),
    "settrace": (
        "import sys\nsys.settrace(lambda *a: None)\nimport threading\nthreading.settrace(lambda *a: None)\n"
        "def square(x): return 5",
        (FOUR,),
    ),
    "another process goes on": (
        "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ndef square(x): return 5",
        (FOUR,),
    ),
    "a thread that prints": (
        "import threading, os\n"
        "def go():\n    while True: os.write(1, b'\\nok 4 pass True\\n')\n"
        "threading.Thread(target=go, daemon=True).start()\ndef square(x): return 5",
        (FOUR,),
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes_any_test(sandbox: Sandbox, cheat: str) -> None:
    code, sources = CHEATS[cheat]
    ran = _run(sandbox, code, *sources)
    assert not ran.passed
    assert not any(result.passed for result in ran.results), ran


@pytest.mark.parametrize("cheat", ["equals everything", "the parent's memory", "a module in the scratch folder"])
def test_nor_under_sandlock(sandlock: Sandbox, cheat: str) -> None:
    code, sources = CHEATS[cheat]
    ran = _run(sandlock, code, *sources)
    assert not ran.passed and not any(result.passed for result in ran.results), ran


# --- what right answers may do -----------------------------------------------------------------------------------

RIGHT = {
    "plain values": (
        "import collections, decimal\n"
        "def same(x): return x\ndef count(x): return collections.Counter(x)\ndef big(n): return 2 ** n\n"
        "P = collections.namedtuple('P', 'x y')\ndef point(): return P(1, 2)\ndef d(): return decimal.Decimal('0.1')",
        (
            "for x in (None, True, 1.5, 'ä', '\\ud800', b'1', (1,), [1], {1}, {1: (2,)}, 1j, range(3), frozenset()):"
            "\n    assert same(x) == x and type(same(x)) is type(x)",
            "assert same(float('nan')) != same(float('nan')) and same(float('-inf')) < 0",
            "assert count('aab') == {'a': 2, 'b': 1} and count('aab').most_common(1) == [('a', 2)]",
            "assert big(20000) == 2 ** 20000",
            "assert point() == (1, 2) and point().x == 1",
            "import decimal\nassert d() == decimal.Decimal('0.1')",
        ),
    ),
    "containers changed in place": (
        "def order(xs, seen):\n    xs.sort()\n    seen['n'] = len(xs)",
        ("xs, seen = [3, 1, 2], {}\norder(xs, seen)\nassert xs == [1, 2, 3] and seen == {'n': 3}",),
    ),
    "classes and generators": (
        "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
        "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)\n"
        "class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(self.x + o.x)\n"
        "    def __eq__(self, o): return self.x == o.x\n"
        "def upto(n):\n    yield from range(n)",
        (
            "s = Stack()\ns.push(3)\nassert len(s) == 1 and s.items == [3] and s.pop() == 3 and isinstance(s, Stack)",
            "assert V(1) + V(2) == V(3) and V(1) != V(2)",
            "assert list(upto(3)) == [0, 1, 2] and upto(3) != [0, 1, 2]",
        ),
    ),
    "exceptions": (
        "class Mine(KeyError): pass\ndef f(x): raise Mine(x)",
        ("try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False",),
    ),
    "functions as arguments": ("def apply(f, x): return f(x)", ("assert apply(lambda x: x + 1, 2) == 3",)),
    "the name of a builtin": ("def sum(a, b): return a + b", ("assert sum(10, 15) == 25",)),
    "its own modules": ("import math as m\nfrom math import gcd", ("assert m.sqrt(4) == gcd(4, 6)",)),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_answers_pass_across_the_pipe(sandbox: Sandbox, kind: str) -> None:
    code, sources = RIGHT[kind]
    assert _run(sandbox, code, *sources).passed, _run(sandbox, code, *sources)


def test_the_task_gives_names_to_both_sides_and_only_the_entry_is_the_answers(sandbox: Sandbox) -> None:
    setup = "def value(x): return x * x\ndef square(x):\n    '''Squares.'''"
    test = "assert value(square(3)) == 81"
    assert _run(sandbox, "def square(x): return value(x)", test, setup=setup, entry="square").passed
    assert not _run(sandbox, "def value(x): return 81", test, setup=setup, entry="square").passed
    assert not _run(
        sandbox, "def value(x): return 81\ndef square(x): return 0", test, setup=setup, entry="square"
    ).passed
    (missing,) = _run(sandbox, "x = 1\ndel square", test, setup=setup, entry="square").results
    assert missing.error == "NameError: name 'square' is not defined"


def test_free_names() -> None:
    assert free_names(["import math\ndef check(f):\n    for x in xs: assert f(x) == math.pi", "check(g)"]) == {
        "xs",
        "g",
    }


# --- reports -----------------------------------------------------------------------------------------------------


def _problem(*tests: AssertTest | str) -> Problem:
    texts = [test if isinstance(test, str) else dump_assert_tests([test])[0] for test in tests]
    return Problem(
        id="p",
        benchmark="b",
        split="test",
        prompt=(Message(role="user", content="?"),),
        answer="",
        tests=tuple(texts),
    )


def _say(sandbox: Sandbox, code: str, *tests: AssertTest | str, **given: str) -> str | None:
    text = f"```python\n{code}\n```"
    return grade_code(_problem(*tests), text, sandbox=sandbox, limits=QUICK, **given).feedback  # type: ignore[arg-type]


HIDDEN = AssertTest(source="assert square(12345) == 152399025", public=False)


def test_a_report_names_the_call_what_came_and_what_was_expected(sandbox: Sandbox) -> None:
    assert _say(sandbox, "def square(x):\n    return x + x", FOUR, "assert square(3) == 9", HIDDEN) == (
        "Wrong answer.\n1 of 2 public tests passed.\nTest: assert square(3) == 9\n"
        "Input: square(3)\nOutput: 6\nExpected: 9"
    )
    assert _say(sandbox, "def square(x):\n    return x / 0", FOUR) == (
        "Runtime error.\n0 of 1 public tests passed.\nTest: assert square(2) == 4\n"
        "ZeroDivisionError: division by zero (line 2: return x / 0)"
    )
    assert _say(sandbox, "def square(x:\n    return 4", FOUR) == (
        "SyntaxError: '(' was never closed (line 1: def square(x:)"
    )


def test_a_report_says_nothing_of_hidden_tests_but_by_permission(sandbox: Sandbox) -> None:
    wrong = "def square(x):\n    return 4"
    told = _say(sandbox, wrong, FOUR, HIDDEN)
    assert told == "Wrong answer.\n1 of 1 public tests passed."
    raising = _say(sandbox, "def square(x):\n    return {2: 4}[x]", FOUR, HIDDEN)
    assert raising is not None and "KeyError (line 2: return {2: 4}[x])" in raising and "12345" not in raising
    assert _say(sandbox, wrong, FOUR, HIDDEN, shown="nothing") is None
    everything = _say(sandbox, wrong, FOUR, HIDDEN, shown="everything")
    assert everything is not None and "Input: square(12345)\nOutput: 4\nExpected: 152399025" in everything
    assert _say(sandbox, "def square(x): return 0", FOUR, shown="verdict") == (
        "Wrong answer.\n0 of 1 public tests passed."
    )


def test_reports_are_the_same_each_time(each: Sandbox) -> None:
    code = "class A: pass\ndef square(x): return A()\nprint(A(), __import__('os').getcwd())"
    first, second = _say(each, code, FOUR), _say(each, code, FOUR)
    assert first == second and first is not None and "Output: <answer.A object at 0x...>" in first
    assert plain("in /tmp/program-ab12_x/program.py at 0x7f12ab34") == "in /tmp/program.py at 0x..."


def test_a_program_that_prints_a_report_of_its_own_is_not_believed(sandbox: Sandbox) -> None:
    code = 'print("\\n" + "0" * 32 + \'{"passed": true}\')\nimport sys\nprint("Expected: 5", file=sys.stderr)'
    told = _say(sandbox, f"{code}\ndef square(x): return 5", FOUR)
    assert told is not None and told.endswith("Output: 5\nExpected: 4")


def test_tests_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ValueError, match="problem p: its tests cannot be read"):
        read_assert_tests(_problem('{"kind": "assert", "sauce": "x"}'))
    with pytest.raises(ValueError, match="problem p: a test is no Python"):
        read_assert_tests(_problem("assert square(2 == 4"))


class _ForksOnce:
    """Stands for a sandbox whose user has no process left."""

    name, isolates = "full", True

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        refuse = "import os\ndef _no(): raise BlockingIOError(11, 'no process left')\nos.fork = _no\n"
        return self.sandbox.run(refuse + source, stdin=stdin, limits=limits)


def test_a_sandbox_without_a_process_left_is_no_wrong_answer(sandbox: Sandbox) -> None:
    grade = grade_code(_problem(FOUR), "```python\ndef square(x): return 5\n```", sandbox=_ForksOnce(sandbox))
    assert (grade.verdict, grade.score) == ("not_scored", None)
    assert grade.error is not None and "no process left" in grade.error


def test_many_at_once_get_their_processes(each: Sandbox) -> None:
    with ThreadPoolExecutor(12) as threads:
        ran = list(threads.map(lambda _: _run(each, "def square(x): return x * x", FOUR), range(24)))
    assert all(run.passed for run in ran), ran
