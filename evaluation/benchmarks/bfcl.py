"""BFCL, single turn (Berkeley Function-Calling Leaderboard, version 4): calls compared argument by argument.

Files of the package ``bfcl-eval`` (its folder ``data``, with ``possible_answer`` inside) under ``bfcl/`` in the
benchmark folder: ``BFCL_v4_<category>.json``. The answer is a list of calls in Python notation, read with ``ast`` and
never evaluated. Categories without a possible answer (irrelevance) are right without any call. Not here: the
multi-turn, memory and web-search categories, and Java and JavaScript, whose arguments are not Python literals.

Stated differences from BFCL's own checker: it refuses 5.0 where an integer is asked for and a tuple where a list is;
here 5.0 is 5 and a tuple is a list. An accepted empty list may be written out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.reading import field, find_file, load_file, records, refuse_training, text_field
from evaluation.grading.tool_calls import VERSION, Call, MalformedCallError, accepts_object, difference, python_calls
from evaluation.problems import Grade, Message, Problem, Role, Split

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
)  # fmt: skip
UNANSWERED = ("irrelevance", "live_irrelevance")
"""Categories whose right answer is no call."""
GET = "they are in bfcl_eval/data of the package bfcl-eval (`pip download --no-deps bfcl-eval`, then unpack the wheel)"

INSTRUCTION = """You may call these functions, given as JSON:
{functions}
Answer with nothing but a list of the calls to make, in Python notation with every argument by name, for example
[first(a=1, b="x"), second.part(c=[1, 2])]. Answer [] when no function fits or a value that is needed is not known."""

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


def _file(category: str, root: Path | None, folder: str = "bfcl") -> Path:
    return find_file("bfcl", f"{folder}/BFCL_v4_{category}.json", root, GET)


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The problems of all categories, one category after the other; ``cluster`` names the category."""
    refuse_training("bfcl", split)
    problems: list[Problem] = []
    for category in CATEGORIES:
        left = None if limit is None else limit - len(problems)
        if left == 0:
            break
        problems += _category(category, left, root)
    return problems


def _category(category: str, limit: int | None, root: Path | None) -> list[Problem]:
    answers: dict[str, Any] = {}
    if category not in UNANSWERED:
        file = _file(category, root, "bfcl/possible_answer")
        answers = {entry["id"]: field(entry, place, "ground_truth") for place, entry in records(file)}

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        name = text_field(entry, place, "id")
        if category not in UNANSWERED and name not in answers:
            raise ValueError(f"{place}: {name} has no possible answer")
        gold = _demanded(answers.get(name, []), field(entry, place, "function"))
        return Problem(
            id=name,
            benchmark="bfcl",
            split="test",
            prompt=_prompt(entry, place),
            answer=json.dumps(gold, ensure_ascii=False),
            solution=written(gold),
        )

    return load_file(_file(category, root), limit, make)


def _demanded(
    gold: Sequence[Mapping[str, Mapping[str, Any]]], functions: Sequence[Mapping[str, Any]]
) -> list[dict[str, dict[str, Any]]]:
    """The expected calls without leave to omit what the function's own description requires, as BFCL grades."""
    required = {function["name"]: set(function.get("parameters", {}).get("required") or ()) for function in functions}

    def options(name: str, key: str, values: Any) -> Any:
        if key not in required.get(name, ()) or not isinstance(values, list):
            return values
        return [value for value in values if value != ""] or values

    return [
        {name: {key: options(name, key, values) for key, values in arguments.items()}}
        for call in gold
        for name, arguments in call.items()
    ]


def written(gold: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """The expected calls with the first accepted value of each argument; an argument that may be left out is."""
    calls = []
    for wanted in gold:
        ((name, options),) = wanted.items()
        calls.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in _first(options).items())})")
    return f"[{', '.join(calls)}]"


def _first(options: Mapping[str, Any]) -> dict[str, Any]:
    """The first accepted value of each argument, objects inside values included."""
    chosen = {}
    for name, values in options.items():
        listed = values if isinstance(values, list) else [values]
        if "" not in listed:
            chosen[name] = _plain(listed[0]) if listed else []
    return chosen


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _first(value)
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _prompt(entry: dict[str, Any], place: str) -> tuple[Message, ...]:
    turns = field(entry, place, "question")
    if not isinstance(turns, list) or len(turns) != 1:
        raise ValueError(f"{place}: {len(turns)} turns where one is expected")
    messages = [Message(role=_ROLES[message["role"]], content=message["content"]) for message in turns[0]]
    given = "\n\n".join(message.content for message in messages if message.role == "system")
    functions = "\n".join(json.dumps(function) for function in field(entry, place, "function"))
    system = INSTRUCTION.format(functions=functions) + (f"\n\n{given}" if given else "")
    return Message(role="system", content=system), *(message for message in messages if message.role != "system")


def _fits(gold: dict[str, dict[str, Any]], call: Call, *, dots: bool) -> bool:
    """``dots``: names must keep their dots; some models can only write underscores."""
    ((name, options),) = gold.items()
    names = name == call.name or (not dots and name.replace(".", "_") == call.name.replace(".", "_"))
    return names and accepts_object(options, call.arguments)


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the calls are exactly those expected, in any order, each argument one of its accepted values.

    Lenient: a dot of a function's name may be an underscore. ``well_formed``: the whole text is a list of calls.
    """
    gold: list[dict[str, dict[str, Any]]] = json.loads(problem.answer)
    malformed: str | None = None
    calls: list[Call] = []
    try:
        calls = python_calls(text)
    except MalformedCallError as error:
        malformed = str(error)
    # Text that is no call at all makes no call: right where none is expected.
    declined = malformed is not None and not gold
    strict = difference(gold, calls, lambda a, b: _fits(a, b, dots=True), json.dumps)
    loose = difference(gold, calls, lambda a, b: _fits(a, b, dots=False), json.dumps)
    right = declined or (strict is None and malformed is None)
    return Grade(
        verdict="pass" if right else "fail",
        score=float(right),
        grader="bfcl",
        version=VERSION,
        extracted="; ".join(call.written() for call in calls) or None,
        feedback=None if right else malformed or strict,
        well_formed=malformed is None,
        lenient="pass" if declined or (loose is None and malformed is None) else "fail",
    )


BFCL = Benchmark(
    name="bfcl",
    version="2-v4",
    title="BFCL v4, single-turn function calls",
    licence="Apache-2.0",
    source="https://gorilla.cs.berkeley.edu/leaderboard.html",
    splits=("test",),
    max_new_tokens=512,
    load=load,
    grade=grade,
    files=(
        *(f"bfcl/BFCL_v4_{category}.json" for category in CATEGORIES),
        *(f"bfcl/possible_answer/BFCL_v4_{category}.json" for category in CATEGORIES if category not in UNANSWERED),
    ),
    kind="tools",
    get=GET,
    grading="the same calls in any order, each argument one of BFCL's accepted values; lenient: _ for a name's dots",
)
