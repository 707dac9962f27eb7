"""The fields of a method with their values and meanings, as the methods pages show them (no torch)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from training.method import Method, override_all

SHOWN = ("sampling", "batch", "reward", "rollout_view", "adapter", "views", "phases", "controllers")
"""The parts of a method that can be changed; the others describe it."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One value of a method: its dotted path, the value as text, what it means and what else it may be."""

    path: str
    value: str
    meaning: str
    choices: tuple[str, ...]


def field_rows(method: Method) -> Iterator[FieldRow]:
    """Every field of the method that can be changed, in order; a variant (``kind``) stands before its own fields."""
    for name in SHOWN:
        yield from _rows(name, getattr(method, name), type(method).model_fields[name])


def _rows(path: str, value: Any, field: FieldInfo | None) -> Iterator[FieldRow]:
    meaning = _plain(field.description or "") if field else ""
    choices = tuple(_choices(field.annotation)) if field else ()
    if isinstance(value, BaseModel):
        kind = getattr(value, "kind", None)
        if kind is not None:
            yield FieldRow(path, kind, f"{meaning} {first_sentence(type(value))}".strip(), choices)
        for name, inner in type(value).model_fields.items():
            if name != "kind":
                yield from _rows(f"{path}.{name}", getattr(value, name), inner)
    elif isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _rows(f"{path}.{name}", part, None)
    else:
        yield FieldRow(path, short(value), meaning, choices)


def _choices(annotation: Any) -> Iterator[str]:
    """The names a field chooses from: the values of a Literal, the kinds of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if "kind" in annotation.model_fields:
            yield annotation.model_fields["kind"].default
    elif get_origin(annotation) is Literal:
        yield from (str(value) for value in get_args(annotation))
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _choices(part)
    elif get_origin(annotation) is Annotated:
        yield from _choices(get_args(annotation)[0])


def first_sentence(spec: type[BaseModel]) -> str:
    """The first sentence of a spec's docstring."""
    text = _plain((spec.__doc__ or "").strip().split("\n\n")[0])
    return text.split(". ")[0].rstrip(".:") + "."


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "").split())


def compact(value: Any) -> Any:
    """``value`` as plain data without what is at its default, in the form that a plan takes.

    A variant with nothing else is its bare name; a spec with nothing else is shown whole.
    """
    if isinstance(value, BaseModel):
        data = {
            name: compact(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if name == "kind" or field.is_required() or getattr(value, name) != field.default
        }
        if list(data) == ["kind"]:
            return data["kind"]
        return data or {name: compact(part) for name, part in value}
    if isinstance(value, Mapping):
        return {name: compact(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [compact(part) for part in value]
    return value


def short(value: Any) -> str:
    """Plain data on one line, as a plan or ``--set`` takes it."""
    data = compact(value)
    if isinstance(data, dict):
        return "{" + ", ".join(f"{name}: {short(part)}" for name, part in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(short(part) for part in data) + "]"
    return data if isinstance(data, str) else json.dumps(data)


def at_path(method: Method, path: str) -> Any:
    """The value at a dotted path of a method."""
    value: Any = method
    for part in path.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def changed(method: Method, changes: Mapping[str, Any]) -> dict[str, str]:
    """Path -> new value on one line, as it stands in the method that the changes lead to."""
    result = override_all(method, changes)
    return {path: short(at_path(result, path)) for path in changes}
