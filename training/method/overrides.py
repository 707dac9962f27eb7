"""One value changed in a frozen method, by its dotted path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from evaluation.names import nearest
from training.method.method import Method


class OverrideError(ValueError):
    """A path that no field answers to, or a value a field refuses."""


def override(method: Method, path: str, value: Any) -> Method:
    """``method`` with one value changed: ``override(OPSD, "views.teacher.weights", "ema")``.

    Raises OverrideError naming the path and the nearest valid name.
    """
    return override_all(method, {path: value})


def override_all(method: Method, changes: Mapping[str, Any]) -> Method:
    """``method`` with several values changed at once (validated together)."""
    data = method.model_dump()
    for path, value in changes.items():
        _set(data, path, value)
    try:
        return Method.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        first = next((entry for entry in errors if _expected(entry)), errors[0])
        # An error of the whole method names its place itself.
        where = next(iter(changes)) if len(changes) == 1 else ".".join(str(part) for part in first["loc"])
        raise OverrideError(": ".join(filter(None, (f"method {method.key!r}", where, _reason(first))))) from error


def _expected(error: Mapping[str, Any]) -> list[str]:
    """The names that would have been valid, where pydantic lists them."""
    context = error.get("ctx", {})
    return re.findall(r"'([^']*)'", str(context.get("expected_tags") or context.get("expected") or ""))


def _reason(error: Mapping[str, Any]) -> str:
    names, given = _expected(error), error["input"]
    if not names:
        return error["msg"].removeprefix("Value error, ")
    word = str(given.get("kind") if isinstance(given, dict) else given)
    return f"{word!r} is not valid here{nearest(word, names)}"


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    node: Any = data
    walked: list[str] = []
    for part in [*parents, leaf]:
        if not isinstance(node, dict) or part not in node:
            here = ".".join(walked) or "the method"
            options = sorted(node) if isinstance(node, dict) else []
            raise OverrideError(f"no field {part!r} in {here} (path {path!r}){nearest(part, options)}")
        if part is leaf and len(walked) == len(parents):
            node[part] = value
            return
        node = node[part]
        walked.append(part)
