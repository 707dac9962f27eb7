"""Reading tool calls from text, and comparing them; brute force over pairings is the reference of the matching."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.benchmarks import BENCHMARKS
from evaluation.grading.tool_calls import (
    Call,
    MalformedCallError,
    accepts,
    accepts_object,
    action_calls,
    difference,
    json_calls,
    loosely_same,
    matching,
    python_calls,
    same,
)
from evaluation.problems import Message, Problem

NESTED = (
    'Thought: {not this}\nAction: find\nAction Input: {"a": {"b": ["}", {"c": "{"}]}, "d": "x\\"}"} trailing {"e": 1}'
)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("", []),
        ("Action: f\nAction Input: {}", [Call("f")]),
        ("Action: f", [Call("f")]),
        ("Action: `f`\nAction Input: None", [Call("f")]),
        ('Action: f\nAction Input:\n{\n  "a": 1\n}\n', [Call("f", {"a": 1})]),
        (NESTED, [Call("find", {"a": {"b": ["}", {"c": "{"}]}, "d": 'x"}'})]),
        (
            'Action: f\nAction Input: {"a": 1}\nObservation: ok\nAction: g\nAction_Input: ```json\n{"b": 2}\n```',
            [Call("f", {"a": 1}), Call("g", {"b": 2})],
        ),
    ],
)
def test_actions_with_nested_json(text: str, calls: list[Call]) -> None:
    assert action_calls(text) == calls


@pytest.mark.parametrize(
    "text",
    [
        "Action: f\nAction Input: {'a': 1}",
        "Action: f\nAction Input: 7",
        'Action: f\nAction Input: {"a": ' + "[" * 10**5,
    ],
)
def test_inputs_that_are_no_json_object_are_malformed(text: str) -> None:
    with pytest.raises(MalformedCallError):
        action_calls(text)


def test_tagged_json() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "}"}}</tool_call> and <tool_call>\n{"name": "g"}\n</tool_call>'
    assert json_calls(text) == [Call("f", {"a": "}"}), Call("g")]
    assert json_calls('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>') == [Call("f", {"a": 1})]
    for wrong in ('{"arguments": {}}', "[]", '{"name": "f", "arguments": 3}', "f()"):
        with pytest.raises(MalformedCallError):
            json_calls(f"<tool_call>{wrong}</tool_call>")


def test_python_notation_is_read_and_never_run() -> None:
    assert python_calls("[f(a=1, b=[-2.5, 'x']), g.h(c={'d': None})]") == [
        Call("f", {"a": 1, "b": [-2.5, "x"]}),
        Call("g.h", {"c": {"d": None}}),
    ]
    assert python_calls("f()") == [Call("f")] and python_calls("[]") == []
    for wrong in (
        "", "f", "f(1)", "f(**{})", "f(a=g())", "f(a=b)", "[f(), 2]", "(lambda: 1)()", "f(a=1)(b=2)", "x = f()",
        "__import__('os').system(command='true')", "f(a=" + "(" * 10**4, "not code at all",
    ):  # fmt: skip
        with pytest.raises(MalformedCallError):
            python_calls(wrong)


@given(st.text(alphabet="Action: Input{}[]\"'\\\n,()=ab1<tol_c>/", max_size=200))
def test_no_text_raises_anything_else(text: str) -> None:
    for read in (action_calls, json_calls, python_calls):
        with contextlib.suppress(MalformedCallError):
            assert all(isinstance(call, Call) for call in read(text))


@pytest.mark.parametrize(
    ("gold", "other", "equal", "loose"),
    [
        (1, 1.0, True, True),
        (1, "1", False, True),
        (True, 1, False, False),
        (True, "true", False, True),
        (None, None, True, True),
        ("a", " A", False, True),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True, True),
        ({"a": 1}, {"a": 1, "b": 2}, False, False),
        ([1, 2], [2, 1], False, False),
        ([1, 2], [1], False, False),
        ({}, [], False, False),
    ],
)
def test_equality_of_values(gold: object, other: object, equal: bool, loose: bool) -> None:
    assert same(gold, other) is same(other, gold) is equal
    assert loosely_same(gold, other) is loosely_same(other, gold) is loose


def test_accepted_values_of_bfcl() -> None:
    assert accepts(["New York", "NY"], "new-york") and not accepts(["New York"], "York")
    assert accepts([5], 5.0) and not accepts([5], "5") and not accepts([1], True)
    assert accepts([["a", "b"]], ("A", "b.")) and not accepts([["a", "b"]], ["b", "a"])
    assert accepts([{"x": [1, 2], "y": ["", 3]}], {"x": 2}) and not accepts([{"x": [1], "y": [3]}], {"x": 1})
    assert accepts([[{"k": ["v"]}]], [{"k": "V"}]) and not accepts([[{"k": ["v"]}]], [{"k": "w"}])
    assert accepts_object({"a": [1], "b": []}, {"a": 1}) and accepts_object({"a": [1], "b": []}, {"a": 1, "b": []})
    assert not accepts_object({"a": [1]}, {"a": 1, "z": 0}) and not accepts_object({"a": [1]}, {})


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4))
def test_as_many_pairs_as_there_can_be(fits: list[list[bool]]) -> None:
    pairs = matching(fits)
    used = [column for column in pairs if column is not None]
    assert len(set(used)) == len(used) and all(
        fits[row][column] for row, column in enumerate(pairs) if column is not None
    )
    best = max(
        sum(fits[row][column] for row, column in enumerate(order[: len(fits)]))
        for order in itertools.permutations(range(4))
    )
    assert len(used) == best


def test_the_difference_names_what_is_missing_and_what_is_too_much() -> None:
    gold = [Call("f", {"a": 1}), Call("f", {"a": 2})]

    def told(*calls: Call) -> str | None:
        return difference(gold, calls, lambda a, b: a == b, Call.written)

    assert told(Call("f", {"a": 2}), Call("f", {"a": 1})) is None
    assert told(Call("f", {"a": 1})) == 'missing: f({"a": 2})'
    assert told(*gold, Call("g")) == "not asked for: g({})"
    assert told(Call("f", {"a": 1}), Call("f", {"a": 1})) == 'missing: f({"a": 2}). not asked for: f({"a": 1})'


STRANGE = [
    "f(a={[1]: 2})",
    "f(a={(1, 2): 3})",
    "f(a={1: 2, 'a': 3})",
    "f(a=0x" + "f" * 5000 + ")",
    "f(a={1, 2})",
    "f(a=b'x')",
    "f(a=1j)",
    "f(a=...)",
    "f(a=" + "[" * 90 + "]" * 90 + ")",
    "f(a=" + "-" * 50_000 + "1)",
    "f" + ".g" * 50_000 + "()",
    "f(a=1, a=2)",
    "f(a='\x00')",
    "f(a='\ud800')",
    "f(a='\\ud800')",
    'Action: f\nAction Input: {"a": "\\ud800"}',
    "Action: f\nAction Input: " + '{"a": ' * 400 + "1" + "}" * 400,
    'Action: f\nAction Input: {"a": ' + "9" * 5000 + "}",
    'Action: f\nAction Input: {"a": NaN}',
    "Action:\nAction Input: {}",
    "Action: f\nAction Input: {" * 2000,
]


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_no_text_makes_a_grader_raise(text: str) -> None:
    """A grader that raises is not scored: an answer must not be able to ask for that."""
    message = Message(role="user", content="?")
    steps = json.dumps([{"Action": "f", "Action_Input": '{"a": 1}'}])
    gold = json.dumps([{"f": {"a": [1]}}])
    for name, answer in (("toolalpaca", steps), ("bfcl", gold)):
        problem = Problem(id="p", benchmark=name, split="test", prompt=(message,), answer=answer)
        grade = BENCHMARKS[name].grade(problem, text)
        assert (grade.verdict, grade.lenient) == ("fail", "fail")
        assert grade.feedback
        grade.model_dump_json().encode()


@given(st.text(alphabet="Action: Input{}[]\"'\\\n,()=ab1<tol_c>/-.*0xe", max_size=300))
def test_graders_of_tool_calls_judge_any_text(text: str) -> None:
    message = Message(role="user", content="?")
    steps = json.dumps([{"Action": "zz", "Action_Input": '{"y": 1}'}])
    problem = Problem(id="p", benchmark="toolalpaca", split="test", prompt=(message,), answer=steps)
    assert BENCHMARKS["toolalpaca"].grade(problem, text).verdict == "fail"
    gold = problem.model_copy(update={"answer": json.dumps([{"zz": {"y": [1]}}])})
    assert BENCHMARKS["bfcl"].grade(gold, text).verdict == "fail"
