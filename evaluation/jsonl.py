"""Reading problems from JSONL files, strictly: every fault is refused with its file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluation.names import nearest
from evaluation.problems import Message, Problem, Split

KEYS = ("problem", "prompt", "solution", "answer", "tests", "id", "cluster")
"""The keys of a record."""


class DataError(ValueError):
    """A data file that cannot be used; the message names file, line and the fix."""


@dataclass(frozen=True, slots=True)
class Record:
    """One problem and where it stands, as ``file:line``."""

    problem: Problem
    place: str


def read_problems(file: Path, *, benchmark: str, split: Split) -> list[Record]:
    """The problems of a JSONL file, in its order.

    A record without ``id`` is called ``<split>-<line>``. A byte order mark, CRLF line ends and empty lines are fine.
    Raises DataError for a missing or empty file, text that is not UTF-8, lines that are not JSON objects, unknown or
    repeated keys, missing or empty problems, values of the wrong type, and two records with one id.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file" if not file.exists() else f"{file}: not a file")
    records: list[Record] = []
    places: dict[str, str] = {}
    for number, line in _lines(file):
        place = f"{file}:{number}"
        problem = _problem(_object(line, place), place, benchmark, split, f"{split}-{number:05d}")
        if problem.id in places:
            raise DataError(f"{place}: id {problem.id!r} is taken by {places[problem.id]}: ids must differ")
        places[problem.id] = place
        records.append(Record(problem, place))
    if not records:
        raise DataError(f"{file}: the file is empty; it needs one JSON record a line, keys {', '.join(KEYS)}")
    return records


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{file}:{number}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        if line:
            yield number, line


def _object(line: str, place: str) -> dict[str, Any]:
    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        repeated = next((key for key in keys if keys.count(key) > 1), None)
        if repeated is not None:
            raise DataError(f"{place}: the key {repeated!r} stands twice")
        return dict(pairs)

    try:
        value = json.loads(line, object_pairs_hook=refuse_repeated)
    except (json.JSONDecodeError, RecursionError) as error:
        hint = "; the file looks like one JSON array: write one record a line" if line[0] == "[" else ""
        raise DataError(f"{place}: not valid JSON ({error}){hint}") from None
    if not isinstance(value, dict):
        raise DataError(f"{place}: a record is a JSON object with keys {', '.join(KEYS)}, not {_kind(value)}")
    return value


def _problem(record: dict[str, Any], place: str, benchmark: str, split: Split, default_id: str) -> Problem:
    for key in record:
        if key not in KEYS:
            raise DataError(f"{place}: unknown key {key!r}{nearest(key, KEYS)}")
    answer, tests = _answer(record, place), _tests(record, place)
    if not answer and not tests:
        raise DataError(f"{place}: a record needs an 'answer' (or 'tests') to be graded by")
    return Problem(
        id=_text(record, "id", place) or default_id,
        benchmark=benchmark,
        split=split,
        prompt=_prompt(record, place),
        answer=answer or "",
        solution=_text(record, "solution", place),
        tests=tests,
        cluster=_text(record, "cluster", place),
    )


def _text(record: dict[str, Any], key: str, place: str) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise DataError(f"{place}: {key!r} must be text, not {_kind(value)}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"{place}: {key!r} holds half a surrogate pair, which is not text")
    if not value.strip():
        raise DataError(f"{place}: {key!r} is empty: leave the key out instead")
    return value


def _answer(record: dict[str, Any], place: str) -> str | None:
    value = record.get("answer")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _text(record, "answer", place)


def _tests(record: dict[str, Any], place: str) -> tuple[str, ...] | None:
    value = record.get("tests")
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(test, str) and test.strip() for test in value):
        raise DataError(f"{place}: 'tests' must be a list of one or more programs (texts)")
    return tuple(value)


def _prompt(record: dict[str, Any], place: str) -> tuple[Message, ...]:
    if ("problem" in record) == ("prompt" in record):
        raise DataError(f"{place}: a record has either a 'problem' (text) or a 'prompt' (messages)")
    if "problem" in record:
        text = _text(record, "problem", place)
        if text is None:
            raise DataError(f"{place}: 'problem' is empty")
        return (Message(role="user", content=text),)
    value = record["prompt"]
    if not isinstance(value, list) or not value:
        raise DataError(f"{place}: 'prompt' must be a list of messages {{role, content}}; for plain text use 'problem'")
    messages = tuple(_message(message, index, place) for index, message in enumerate(value))
    if messages[-1].role != "user":
        raise DataError(f"{place}: the last message of 'prompt' must be the user's, not {messages[-1].role!r}")
    return messages


def _message(value: Any, index: int, place: str) -> Message:
    try:
        message = Message.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["prompt", str(index), *map(str, first["loc"])])
        raise DataError(f"{place}: {where}: {first['msg']}") from None
    if not message.content.strip():
        raise DataError(f"{place}: prompt.{index}.content is empty")
    return message


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
