"""Tests of a program that are programs themselves: assertions in the names that the answer defines."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from evaluation.problems import Problem
from evaluation.spec import Spec

_BEGINNING = '{"kind": "assert"'


class AssertTest(Spec):
    """Python statements that raise when the answer is wrong. A problem keeps it as JSON, or as its bare source."""

    kind: Literal["assert"] = "assert"
    source: str
    setup: str = ""
    """Statements that run before the answer, in its names: what the task gives, such as imports and other functions."""
    entry: str = ""
    """The one name that the tests take from the answer; empty takes all names that they do not define themselves."""
    public: bool = True
    """Whether feedback may show it."""


def read_assert_tests(problem: Problem) -> list[AssertTest]:
    """The tests in their order; a bare source is a public test. Raises ValueError naming the problem."""
    try:
        tests = [_read(text) for text in problem.tests or ()]
        for test in tests:
            ast.parse(test.source)
    except ValidationError as error:
        raise ValueError(f"problem {problem.id}: its tests cannot be read ({error.errors()[0]['msg']})") from error
    except SyntaxError as error:
        raise ValueError(f"problem {problem.id}: a test is no Python ({error.msg}, line {error.lineno})") from error
    return tests


def _read(text: str) -> AssertTest:
    return AssertTest.model_validate_json(text) if text.startswith(_BEGINNING) else AssertTest(source=text)


def dump_assert_tests(tests: Sequence[AssertTest]) -> tuple[str, ...]:
    """The tests as a problem keeps them."""
    return tuple(json.dumps(test.model_dump(mode="json")) for test in tests)


def free_names(sources: Sequence[str]) -> set[str]:
    """Names that the tests use and do not make themselves."""
    used: set[str] = set()
    made: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                made.add(node.name)
            elif isinstance(node, ast.arg):
                made.add(node.arg)
            elif isinstance(node, ast.alias):
                made.add((node.asname or node.name).partition(".")[0])
    return used - made


def module_bases(sources: Sequence[str]) -> set[str]:
    """Names of standard modules that the tests take attributes of."""
    nodes = [
        node.value for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
    ]
    return {node.id for node in nodes if isinstance(node, ast.Name)} & sys.stdlib_module_names
