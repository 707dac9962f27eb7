"""Paths into a method that name several fields at once: ``phases.*.optimiser.learning_rate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.names import nearest
from training.method import Method, OverrideError, override_all

SHORTHANDS = {"learning_rate": "phases.*.optimiser.learning_rate"}
"""Names that a plan may write instead of a path."""


def matching_paths(method: Method, path: str) -> list[str]:
    """The fields of ``method`` that ``path`` names; ``*`` stands for every name at its place.

    Where a ``*`` leads to parts without the rest of the path, those are left out: ``phases.*.terms.*.entry_clip`` is
    the clip of the terms that have one. A path without ``*`` is returned as it is. Raises OverrideError if nothing
    matches.
    """
    path = SHORTHANDS.get(path, path)
    parts = path.split(".")
    if "*" not in parts:
        return [path]
    places: list[tuple[str, Any]] = [("", method.model_dump())]
    for part in parts:
        following = [
            (f"{place}.{name}" if place else name, node[name])
            for place, node in places
            if isinstance(node, dict)
            for name in (node if part == "*" else [part] if part in node else [])
        ]
        if not following:
            names = sorted({name for _, node in places if isinstance(node, dict) for name in node})
            found = ", ".join(place or "the method" for place, _ in places)
            raise OverrideError(f"path {path!r} matches nothing: no {part!r} in {found}{nearest(part, names)}")
        places = following
    return [place for place, _ in places]


def single_paths(method: Method, changes: Mapping[str, Any]) -> dict[str, Any]:
    """``changes`` with every path that names several fields written out; of two changes of a field the later holds.

    A ``*`` is matched against the method with the other changes made. Raises OverrideError.
    """
    plain = {path: value for path, value in changes.items() if "*" not in SHORTHANDS.get(path, path).split(".")}
    shaped = override_all(method, plain) if plain and len(plain) < len(changes) else method
    found: dict[str, Any] = {}
    for path, value in changes.items():
        for place in matching_paths(shaped, path):
            found.pop(place, None)
            found[place] = value
    return found
