"""Tests of a program that are data: what goes in, what must come out, and whether the student may see it.

A problem's ``tests`` are then JSON objects, one string each. Expected values stay in this process: the sandbox runs the
program and says what came out, so that no program can read or forge them.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from evaluation.problems import Problem
from evaluation.spec import Spec


class CallTest(Spec):
    """One call of a function. ``arguments`` and ``expected`` are Python literals."""

    kind: Literal["call"] = "call"
    function: str
    """A function's name, or ``Solution().name`` for a method of the class that the answer defines."""
    arguments: str
    """A list or tuple of the positional arguments."""
    expected: str
    tolerance: float = 0.0
    """Largest absolute difference of two floats; 0 asks for the same number, to 1e-6 where a float is expected."""
    sequences_are_equal: bool = False
    """Whether a list and a tuple with the same items are the same."""
    public: bool = False


class StdinTest(Spec):
    """One run of the whole program: ``given`` on standard input, ``expected`` on standard output."""

    kind: Literal["stdin"] = "stdin"
    given: str
    expected: str
    public: bool = False


ProgramTest = Annotated[CallTest | StdinTest, Field(discriminator="kind")]

_TEST: TypeAdapter[CallTest | StdinTest] = TypeAdapter(ProgramTest)
_FLOAT_TOLERANCE = 1e-6


def is_data(problem: Problem) -> bool:
    """Whether the problem's tests are data, and not programs with assertions."""
    return bool(problem.tests) and problem.tests is not None and problem.tests[0].startswith('{"kind"')


def read_tests(problem: Problem) -> list[CallTest | StdinTest]:
    """The tests, the public ones first. Raises ValueError naming the problem."""
    try:
        tests = [_TEST.validate_json(text) for text in problem.tests or ()]
    except ValidationError as error:
        raise ValueError(f"problem {problem.id}: its tests cannot be read ({error.errors()[0]['msg']})") from error
    if len({test.kind for test in tests}) > 1:
        raise ValueError(f"problem {problem.id}: tests of both kinds")
    return sorted(tests, key=lambda test: not test.public)


def literal(text: str) -> Any:
    """A Python literal, with ``inf`` and ``nan`` as numbers; sets and dicts included. Raises ValueError."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    names = {"inf": math.inf, "nan": math.nan, "set": set}
    try:
        return _Literals(names).value(ast.parse(text, mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{text[:80]!r} is no literal") from error


class _Literals:
    """Literals with a few names, read from the syntax tree without running anything."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in self.names and node.id != "set":
            return self.names[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "set" and not node.args:
            return set()
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [self.value(item) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items) if isinstance(node, ast.Tuple) else {*items}
        if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            keys = [self.value(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(self.value, node.values), strict=True))
        return ast.literal_eval(node)


def same_value(expected: Any, found: Any, tolerance: float, sequences: bool) -> bool:
    """Equality as Python has it, with floats within ``tolerance`` (1e-6 where a float is expected and it is 0).

    ``sequences``: a list equals a tuple. True is not 1 here: a function that returns the wrong type is wrong.
    """
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, float) and isinstance(found, int | float):
        allowed = tolerance or _FLOAT_TOLERANCE
        return expected == found or (math.isnan(expected) and math.isnan(found)) or abs(expected - found) <= allowed
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if not sequences and type(expected) is not type(found):
            return False
        pairs = zip(expected, found, strict=False)
        return len(expected) == len(found) and all(same_value(a, b, tolerance, sequences) for a, b in pairs)
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            same_value(value, found[key], tolerance, sequences) for key, value in expected.items()
        )
    return type(expected) is type(found) and expected == found


def same_output(expected: str, found: str) -> bool:
    """Whether two outputs have the same lines, white space at the ends aside; numbers are compared by value."""
    wanted, given = (_lines(text) for text in (expected, found))
    return len(wanted) == len(given) and all(map(_same_line, wanted, given))


def _lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.strip().splitlines()]
    return [line for line in lines if line] if lines else []


def _same_line(expected: str, found: str) -> bool:
    if expected == found:
        return True
    wanted, given = expected.split(), found.split()
    return len(wanted) == len(given) and all(map(_same_word, wanted, given))


def _same_word(expected: str, found: str) -> bool:
    if expected == found:
        return True
    try:
        return Decimal(expected) == Decimal(found)
    except InvalidOperation:
        return False


def dump_tests(tests: Sequence[CallTest | StdinTest]) -> tuple[str, ...]:
    """The tests as a problem keeps them."""
    return tuple(json.dumps(test.model_dump(mode="json")) for test in tests)
