"""Tool calls: reading them from text in three notations, and comparing them argument by argument.

Nothing is evaluated: JSON is read by the JSON decoder (which matches nested braces and strings), Python notation by
``ast`` with literals only. No text makes a reader raise anything but MalformedCallError.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VERSION = "2"

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(?P<name>.*?)[ \t]*$", re.MULTILINE)
_INPUT = re.compile(r"^[ \t]*Action[ _]Input:", re.MULTILINE)
_TAG = re.compile(r"<tool_call>(?P<inside>.*?)</tool_call>", re.DOTALL)
_FENCED = re.compile(r"^```\w*\n(?P<inside>.*?)\n?```$", re.DOTALL)
_PUNCTUATION = re.compile(r"[ ,./\-_*^]")
_DECODER = json.JSONDecoder()

DEEPEST = 50
"""Levels of lists and objects inside an argument."""

LARGEST = 10**300
"""Integers beyond this cannot be written in decimals everywhere."""


class MalformedCallError(ValueError):
    """The text holds something meant as a call that is none; the message says what."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a tool's name and its arguments by name."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def written(self) -> str:
        """The call for people; half a surrogate pair, which no file takes, as its escape."""
        arguments = json.dumps(dict(self.arguments), ensure_ascii=False, sort_keys=True, default=str)
        return f"{self.name}({arguments})".encode(errors="backslashreplace").decode()


def read_call(name: str, arguments: Mapping[str, Any]) -> Call:
    """The call, once its arguments are found to be plain data: what comparing and writing can handle."""
    _refuse_strange(arguments, name, 0)
    return Call(name, arguments)


def _refuse_strange(value: Any, name: str, depth: int) -> None:
    if depth > DEEPEST:
        raise MalformedCallError(f"{name[:80]!r} has arguments nested deeper than {DEEPEST} levels")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise MalformedCallError(f"{name[:80]!r} has an object whose keys are no texts")
        parts: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < LARGEST):
        return
    else:
        raise MalformedCallError(f"{name[:80]!r} has an argument of type {type(value).__name__} or of that size")
    for part in parts:
        _refuse_strange(part, name, depth + 1)


def action_calls(text: str) -> list[Call]:
    """``Action: name`` with ``Action Input: {…}`` behind it, in order; an input left out is ``{}``.

    The input is the JSON object that begins at the first brace after its label, however many lines it takes.
    """
    names = [*_ACTION.finditer(text)]
    calls = []
    for match, following in zip(names, [*names, None][1:], strict=True):
        end = following.start() if following is not None else len(text)
        label = _INPUT.search(text, match.end(), end)
        arguments = {} if label is None else _object_at(text, label.end(), end)
        calls.append(read_call(match["name"].strip("`\"' "), arguments))
    return calls


def _object_at(text: str, start: int, end: int) -> dict[str, Any]:
    brace = text.find("{", start, end)
    if brace < 0:
        rest = text[start:end].strip()
        if rest.lower() in ("", "none", "null"):
            return {}
        raise MalformedCallError(f"the action input {rest[:80]!r} is no JSON object")
    return _decoded(text[brace:end])


def _decoded(text: str) -> dict[str, Any]:
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedCallError(f"{text[:80]!r} is not valid JSON ({type(error).__name__}: {error})") from None
    if not isinstance(value, dict):
        raise MalformedCallError(f"{text[:80]!r} is no JSON object")
    return value


def json_calls(text: str) -> list[Call]:
    """``{"name": …, "arguments": {…}}`` between ``<tool_call>`` tags, in order."""
    calls = []
    for match in _TAG.finditer(text):
        value = _decoded(match["inside"].strip())
        arguments = value.get("arguments", value.get("parameters", {}))
        arguments = _decoded(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(value.get("name"), str) or not isinstance(arguments, dict):
            raise MalformedCallError(f"a tool call needs name and arguments: {match['inside'].strip()[:80]!r}")
        calls.append(read_call(value["name"], arguments))
    return calls


def python_calls(text: str) -> list[Call]:
    """``[f(a=1), g.h(b=[2])]`` or one call, as the whole text or in one code fence; ``[]`` is no call.

    Arguments are literals given by name. Raises MalformedCallError for anything else.
    """
    text = text.strip()
    fenced = _FENCED.match(text)
    text = fenced["inside"].strip() if fenced else text
    try:
        expression = ast.parse(text, mode="eval").body
        nodes = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
        return [_python_call(node) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, MalformedCallError):
            raise
        raise MalformedCallError(f"{text[:80]!r} is not a list of calls") from None


def _python_call(node: ast.AST) -> Call:
    if not isinstance(node, ast.Call):
        raise MalformedCallError(f"{ast.unparse(node)[:80]!r} is no call")
    name = ast.unparse(node.func)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        raise MalformedCallError(f"{name[:80]!r} is no name of a tool")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise MalformedCallError(f"{name} has arguments without a name")
    return read_call(name, {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg})


# --- comparing ---------------------------------------------------------------------------------------------------


def same(gold: Any, given: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, true is not 1, the order of an object's keys does not matter."""
    if isinstance(gold, bool) or isinstance(given, bool):
        return gold is given
    if isinstance(gold, int | float) and isinstance(given, int | float):
        return gold == given
    if isinstance(gold, dict) and isinstance(given, dict):
        return gold.keys() == given.keys() and all(same(gold[key], given[key]) for key in gold)
    if isinstance(gold, list | tuple) and isinstance(given, list | tuple):
        return len(gold) == len(given) and all(map(same, gold, given))
    return type(gold) is type(given) and gold == given


def loosely_same(gold: Any, given: Any) -> bool:
    """The same where numbers may be written as text, and case and white space around texts do not matter."""
    if isinstance(gold, dict) and isinstance(given, dict):
        return gold.keys() == given.keys() and all(loosely_same(gold[key], given[key]) for key in gold)
    if isinstance(gold, list | tuple) and isinstance(given, list | tuple):
        return len(gold) == len(given) and all(map(loosely_same, gold, given))
    return same(gold, given) or _loose(gold) == _loose(given)


def _loose(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)).strip().casefold()


def accepts(options: Sequence[Any], given: Any) -> bool:
    """Whether ``given`` is one of BFCL's accepted values; inside an object each value is a list of options again.

    Texts are compared without case and without ``,./-_*^``, spaces and kinds of quotes, as BFCL does.
    """
    return any(_accepted(option, given) for option in options)


def _accepted(option: Any, given: Any) -> bool:
    if isinstance(option, dict):
        return isinstance(given, dict) and accepts_object(option, given)
    if isinstance(option, list) and isinstance(given, list | tuple):
        return len(option) == len(given) and all(map(_accepted, option, given))
    if isinstance(option, str) and isinstance(given, str):
        return _standard(option) == _standard(given)
    return same(option, given)


def accepts_object(options: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Every argument is accepted, none is unknown, and those left out have ``""`` among their options.

    No options at all stand for an empty list, given or left out.
    """
    if not given.keys() <= options.keys():
        return False
    for name, values in options.items():
        listed = values or ["", []] if isinstance(values, list) else [values]
        if name in given:
            if not accepts(listed, given[name]):
                return False
        elif "" not in listed:
            return False
    return True


def _standard(text: str) -> str:
    return _PUNCTUATION.sub("", text).lower().replace("'", '"')


def matching(fits: Sequence[Sequence[bool]]) -> list[int | None]:
    """For each row the column paired with it, as many pairs as there can be (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    for row in range(len(fits)):
        place(row, set())
    columns = {row: column for column, row in owner.items()}
    return [columns.get(row) for row in range(len(fits))]


def difference(
    gold: Sequence[Any], calls: Sequence[Call], fits: Callable[[Any, Call], bool], written: Callable[[Any], str]
) -> str | None:
    """What keeps ``calls`` from being exactly the calls of ``gold``, in any order; None when nothing does."""
    pairs = matching([[fits(wanted, call) for call in calls] for wanted in gold])
    missing = [written(wanted) for wanted, column in zip(gold, pairs, strict=True) if column is None]
    taken = {column for column in pairs if column is not None}
    extra = [call.written() for index, call in enumerate(calls) if index not in taken]
    parts = [f"missing: {'; '.join(missing)}"] if missing else []
    parts += [f"not asked for: {'; '.join(extra)}"] if extra else []
    return ". ".join(parts) or None
