"""BFCL's own records: every gold passes, and what differs in a call, an argument or a name fails."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import MissingDataError
from evaluation.benchmarks.bfcl import _demanded, written
from evaluation.problems import Message, Problem
from tests.evaluation.benchmarks.data import folder, needs_files

GRADE = BENCHMARKS["bfcl"].grade


def _problem(*gold: dict[str, dict[str, Any]]) -> Problem:
    return Problem(
        id="p",
        benchmark="bfcl",
        split="test",
        prompt=(Message(role="user", content="?"),),
        answer=json.dumps(gold),
        solution=written(gold),
    )


NESTED = _problem(
    {"find": {"where": [{"at": [{"x": 10.5, "y": 50}], "note": ["", "here"]}], "tags": [["a", "b"]], "more": []}},
    {"stop": {}},
)
PARALLEL = _problem({"area": {"a": [3], "unit": ["", "m"]}}, {"area": {"a": [4], "unit": ["cm"]}})


def test_the_written_calls_are_the_first_accepted_values() -> None:
    assert NESTED.solution == "[find(where={'at': {'x': 10.5, 'y': 50}}, tags=['a', 'b'], more=[]), stop()]"
    assert PARALLEL.solution == "[area(a=3), area(a=4, unit='cm')]"
    assert [GRADE(problem, problem.solution or "").verdict for problem in (NESTED, PARALLEL)] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[area(a=4, unit='cm'), area(a=3, unit='m')]", "pass"),
        ("[area(a=4.0, unit='CM'), area(a=3)]", "pass"),
        ("[area(a=3)]", "fail"),
        ("[area(a=3), area(a=4, unit='cm'), area(a=3)]", "fail"),
        ("[area(a=3), area(a=3, unit='m')]", "fail"),
        ("[area(a=3), area(a=4)]", "fail"),
        ("[area(a=3), area(a=4, unit='mm')]", "fail"),
        ("[area(a=3), area(a='4', unit='cm')]", "fail"),
        ("[area(a=3), area(a=4, unit='cm', size=1)]", "fail"),
        ("[area(a=3), volume(a=4, unit='cm')]", "fail"),
        ("[area(a=3), area(a=2+2, unit='cm')]", "fail"),
        ("[area(a=3), area(a=int('4'), unit='cm')]", "fail"),
    ],
)
def test_calls_in_any_order_each_argument_accepted(text: str, verdict: str) -> None:
    assert GRADE(PARALLEL, text).verdict == verdict


def test_feedback_names_what_differs() -> None:
    grade = GRADE(PARALLEL, "[area(a=3), area(a=5, unit='cm')]")
    assert grade.feedback is not None
    assert grade.feedback.startswith('missing: {"area": {"a": [4]') and '{"a": 5, "unit": "cm"}' in grade.feedback


@needs_files
def test_every_record_of_the_package_passes_its_gold_and_fails_what_differs() -> None:
    try:
        problems = BENCHMARKS["bfcl"].load("test", root=folder())
    except MissingDataError as error:
        pytest.skip(str(error))
    verdicts: Counter[str] = Counter()
    for problem in problems:
        gold = json.loads(problem.answer)
        verdicts[GRADE(problem, problem.solution or "").verdict] += 1
        if gold:
            others = (written(gold[:-1]), written([*gold, gold[0]]), "[]", "", "Sorry.", "[no_such_tool()]")
        else:
            others = ("[no_such_tool()]",)
        assert [GRADE(problem, text).verdict for text in others] == ["fail"] * len(others), problem.id
    assert verdicts == {"pass": 3475}


def test_a_required_argument_may_not_be_left_out_whatever_the_options_say() -> None:
    functions = [{"name": "factors", "parameters": {"required": ["number", "formatted"]}}]
    gold = [{"factors": {"number": [450], "formatted": [True, ""], "unit": ["", "m"]}}]
    problem = _problem(*_demanded(gold, functions))
    assert GRADE(problem, "[factors(number=450, formatted=True)]").verdict == "pass"
    assert GRADE(problem, "[factors(number=450)]").verdict == "fail"
