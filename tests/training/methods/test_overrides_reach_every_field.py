"""``override`` reaches every field of every method, and refuses what is not one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from training.method import Method, OverrideError, override
from training.methods import METHODS
from training.schedules import Controlled, Linear, Ramp, Steps

PARTS = ("sampling", "batch", "reward", "rollout_view", "adapter", "views", "phases", "controllers")


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every dotted path below a value, and what is there."""
    yield path, value
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}")


def paths(method: Method) -> list[tuple[str, Any]]:
    return [entry for part in PARTS for entry in leaves(getattr(method, part), part)]


def test_the_parts_are_all_but_what_describes() -> None:
    describing = {
        "key", "title", "summary", "paper", "status", "equation", "open_choices", "code_differences", "ablations",
    }  # fmt: skip
    assert set(Method.model_fields) == describing | set(PARTS)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_field_set_to_itself_is_the_method(method: Method) -> None:
    found = paths(method)
    assert len(found) > 40
    for path, value in found:
        plain = value.model_dump() if isinstance(value, BaseModel) else value
        assert override(method, path, plain) == method, path


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_field_refuses_a_value_of_the_wrong_type(method: Method) -> None:
    for path, _ in paths(method):
        with pytest.raises(OverrideError) as refused:
            override(method, path, [{"no such": object}])
        assert path in str(refused.value), path


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_misspelt_path_is_answered_with_the_right_one(method: Method) -> None:
    for path, value in paths(method):
        head, _, leaf = path.rpartition(".")
        wrong = f"{head}.{leaf}x" if head else f"{leaf}x"
        with pytest.raises(OverrideError) as refused:
            override(method, wrong, value)
        assert f"did you mean {leaf!r}?" in str(refused.value), path


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_misspelt_name_is_answered_with_the_right_one(method: Method) -> None:
    """Kinds, choices, names of views, controllers and outputs, each with a letter more."""
    asked = 0
    for path, value in paths(method):
        kind = getattr(value, "kind", None)
        name = kind if isinstance(kind, str) else value
        if not isinstance(name, str):
            continue
        asked += 1
        wrong: Any = f"{name}x"
        if isinstance(value, Linear | Ramp | Steps | Controlled):  # a schedule is a mapping and never a bare name
            wrong = {**value.model_dump(), "kind": wrong}
        with pytest.raises(OverrideError) as refused:
            override(method, path, wrong)
        assert repr(name) in str(refused.value), f"{path}: {refused.value}"
    assert asked > 10
