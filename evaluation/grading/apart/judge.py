"""The tests' side: runs the tests and tells the parent what came of each, and in the end the secret word."""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import sys

from evaluation.grading.apart.answer import described, executed, serve
from evaluation.grading.apart.handles import Answer, AnswerEndedError
from evaluation.grading.apart.values import CannotCrossError, short

TYPE_CHECKING = False  # see values
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

WORD = 64
"""Characters of the secret word, the last of the job."""


def names_of(answer: Answer, job: dict[str, Any], tests: dict[str, Any]) -> dict[str, Any]:
    """The tests' namespace: what the task gives, and the names of the answer that the tests need.

    A test that writes ``set(f(1)) == {2}`` means Python's set, and ``math.isclose`` the module's: a builtin's name is
    the answer's only when the tests need no other name of it, that of a standard module never.
    """
    told = answer.read()["names"]
    namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
    if job["setup"]:
        exec(compile(job["setup"], "setup.py", "exec"), namespace)
    namespace.pop(tests["entry"], None)
    wanted = {tests["entry"]} if tests["entry"] else {*tests["names"]} - {*tests["modules"]}
    plain = {name for name in wanted if not hasattr(builtins, name)}
    for name in tests["names"]:
        coded = told.get(name)
        module = name if name in tests["modules"] else coded.get("module") if isinstance(coded, dict) else None
        if module is not None:
            if name in told and is_standard(module):
                namespace.setdefault(name, __import__(module, fromlist=["_"]))
        elif name in told and name in (plain or wanted):
            namespace[name] = answer.decode(coded)
    return namespace


def is_standard(module: str) -> bool:
    return module.partition(".")[0] in getattr(sys, "stdlib_module_names", sys.builtin_module_names)


def failing_assertion(ast: Any, error: BaseException, source: str) -> tuple[Any, FrameType] | None:
    """The statement ``assert …`` of the tests that failed, and its frame."""
    trace, frame, line = error.__traceback__, None, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "tests.py":
            frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    for node in ast.walk(ast.parse(source)):
        if frame is not None and isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
            return node, frame
    return None


def comparison(error: BaseException, source: str) -> dict[str, str]:
    """The assertion that failed; for ``assert call == value`` also the call, what it gave and what was expected."""
    import ast  # only where a test fails: it takes as long as the rest of a run

    found = failing_assertion(ast, error, source)
    if found is None:
        return {}
    test, frame = found[0].test, found[1]
    told = {"asserted": short(ast.unparse(test))}
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
        left, right = test.left, test.comparators[0]
        if not any(isinstance(part, ast.Call) for part in ast.walk(left)):
            left, right = right, left
        for name, side in (("got", left), ("expected", right)):
            code = compile(ast.Expression(side), "tests.py", "eval")
            told[name] = short(repr(eval(code, frame.f_globals, frame.f_locals)))
        told["call"] = short(ast.unparse(left))
    return told


def run(source: str, namespace: dict[str, Any], line_of: Callable[[BaseException], Any]) -> dict[str, Any]:
    """What came of one test."""
    try:
        exec(compile(source, "tests.py", "exec"), namespace)
        return {"passed": True}
    except (CannotCrossError, AnswerEndedError):
        raise
    except BaseException as error:  # whatever a test raises is its failure
        told = {"passed": False, "error": type(error).__name__, "message": short(str(error)), "line": line_of(error)}
        with contextlib.suppress(Exception):  # a second look at the failed test is a courtesy
            told.update(comparison(error, source))
        return told


def tell(shown: int, mark: str, what: dict[str, Any]) -> None:
    os.write(shown, f"\n{mark}{json.dumps(what)}\n".encode())


def judge(
    tests: dict[str, Any],
    names: Callable[[], dict[str, Any]],
    line_of: Callable[[BaseException], Any],
    take: Callable[[int], bytes],
    shown: int,
) -> None:
    """Runs all tests in the namespace that ``names`` gives and tells the parent; does not return."""

    def report(what: dict[str, Any]) -> None:
        tell(shown, tests["mark"], what)

    def stop(what: dict[str, Any]) -> None:
        report(what)
        os._exit(1)

    passed = 0
    try:
        namespace = names()
        for source in tests["sources"]:
            result = run(source, namespace, line_of)
            passed += result["passed"] is True
            report(result)
    except CannotCrossError as error:
        stop({"cannot_cross": str(error)})
    except AnswerEndedError as error:
        stop({"ended": str(error)})
    except BaseException as error:  # of the answer itself, before the first test
        stop({"failed": type(error).__name__, "message": short(str(error)), "line": line_of(error)})
    if passed == len(tests["sources"]):
        os.write(shown, b"\n" + take(WORD))
    os._exit(0)


def taker(descriptor: int) -> Callable[[int], bytes]:
    """Reads exactly as much as asked, so that nothing of the rest is in memory."""

    def take(count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = os.read(descriptor, count - len(data))
            if not part:
                raise EOFError("the job is cut short")
            data += part
        return data

    return take


def shield() -> None:
    """Keeps other processes of this user from reading this one's memory (Linux; sandlock forbids that by itself)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def no_input() -> None:
    """Puts nothing in the place of standard input, where the job stands."""
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")


def apart(job: dict[str, Any], size: int) -> None:
    """The answer in a process of its own, forked before the tests and the word are read."""
    shield()
    take = taker(0)
    (asked, asks), (told, tells) = os.pipe(), os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        # No program ran: it is the sandbox that failed.
        tell(1, json.loads(take(size))["mark"], {"broken": f"no second process ({error})"})
        os._exit(1)
    if pid == 0:
        os.close(asks)
        os.close(told)
        no_input()
        serve(job, os.fdopen(asked, "r", encoding="utf-8"), os.fdopen(tells, "w", encoding="utf-8"))
    os.close(asked)
    os.close(tells)
    tests = json.loads(take(size))
    answer = Answer(pid, os.fdopen(asks, "w", encoding="utf-8"), os.fdopen(told, "r", encoding="utf-8"))
    judge(tests, lambda: names_of(answer, job, tests), lambda error: answer.line, take, 1)


def together(job: dict[str, Any], size: int) -> None:
    """The answer in this process, for tests that hand it functions or objects of their own."""
    import fcntl

    take = taker(fcntl.fcntl(0, fcntl.F_DUPFD, 16 + os.urandom(1)[0] % 32))
    shown = os.dup(1)
    no_input()
    failed: BaseException | None = None
    namespace: dict[str, Any] = {}
    try:
        namespace = executed(job)
    except BaseException as error:  # whatever the answer raises
        failed = error

    def names() -> dict[str, Any]:
        if failed is not None:
            raise failed
        return namespace

    judge(json.loads(take(size)), names, lambda error: described(error)["line"], take, shown)


def main() -> None:
    # The scratch folder is the answer's to write in: nothing may be imported from it.
    sys.path[:] = [place for place in sys.path if place.startswith((sys.base_prefix, "/usr/lib"))]
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    take = taker(0)
    first, second = int(take(20)), int(take(20))
    job = json.loads(take(first))
    (apart if job["apart"] else together)(job, second)
