"""Validation errors as one line: the place in the user's file and the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from evaluation.names import nearest


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """The first error of ``error`` as ``file: path: what is wrong; did you mean …``."""
    first = _most_specific(error.errors())
    schema = model.model_json_schema()
    path = _path(first["loc"], schema)
    prefix = f"{where}: {path}: " if path else f"{where}: "
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        return f"{prefix}unknown key{nearest(key, _keys(schema, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"{prefix}missing"
    message = first["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}".replace("a valid tuple", "a list").replace("tuple", "list")
    given = "" if isinstance(first["input"], dict | list | BaseModel) else f", not {first['input']!r}"
    return f"{prefix}{message}{given}"


def _most_specific(errors: Iterable[Any]) -> Any:
    """Of a union's many complaints the deepest is the one about the variant that the user meant."""
    return max(errors, key=lambda error: (error["type"] == "extra_forbidden", len(error["loc"])))


def _path(location: tuple[str | int, ...], schema: dict[str, Any]) -> str:
    text = ""
    for index, part in enumerate(location):
        if isinstance(part, int):
            text += f"[{part}]"
        elif index and part in _tags(schema, location[:index]):
            continue
        else:
            text += f".{part}" if text else part
    return text


def _tags(schema: dict[str, Any], location: tuple[str | int, ...]) -> set[str]:
    """Tags of the union at ``location``: they are in pydantic's path and not in the user's file."""
    tags: set[str] = set()
    for node in _nodes(schema, location):
        tags.update(node.get("discriminator", {}).get("mapping", {}))
    return tags


def _keys(schema: dict[str, Any], location: tuple[str | int, ...]) -> list[str]:
    return sorted({key for node in _nodes(schema, location) for key in _resolved(schema, node).get("properties", {})})


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    return schema["$defs"][reference.rsplit("/", 1)[-1]] if reference else node


def _nodes(schema: dict[str, Any], location: tuple[str | int, ...]) -> list[dict[str, Any]]:
    """Schema nodes that ``location`` may point at."""
    nodes = [schema]
    for part in location:
        following: list[dict[str, Any]] = []
        for node in _variants(schema, nodes):
            mapping = node.get("discriminator", {}).get("mapping", {})
            if isinstance(part, int):
                following += [node["items"]] if isinstance(node.get("items"), dict) else node.get("prefixItems", [])
            elif part in node.get("properties", {}):
                following.append(node["properties"][part])
            elif part in mapping:
                following.append({"$ref": mapping[part]})
            elif isinstance(node.get("additionalProperties"), dict):
                following.append(node["additionalProperties"])
        nodes = following
    return _variants(schema, nodes)


def _variants(schema: dict[str, Any], nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    pending = list(nodes)
    while pending:
        node = _resolved(schema, pending.pop())
        found.append(node)
        for union in ("anyOf", "oneOf", "allOf"):
            pending += node.get(union, [])
    return found
