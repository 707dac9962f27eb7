"""In which fields two runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.results.selection import find_run

if TYPE_CHECKING:
    import duckdb

ABSENT = "–"
"""What a side shows that does not have the field."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The values of one field in two runs; a run without the field has an empty tuple, else a tuple of one."""

    values: tuple[tuple[Any, ...], tuple[Any, ...]]

    def text(self, side: int) -> str:
        """The value as JSON says it, a text as it is."""
        if not self.values[side]:
            return ABSENT
        value = self.values[side][0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Tree = dict[str, Any]
"""Field -> Sides, or the tree below it."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Two runs side by side: only what differs, as nested as it is stored."""

    runs: tuple[str, str]
    spec: Tree
    provenance: Tree

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: each field as {run id: value}; a run without the field is not in it."""

        def plain(node: Tree) -> dict[str, Any]:
            return {
                name: {run: held[0] for run, held in zip(self.runs, below.values, strict=True) if held}
                if isinstance(below, Sides)
                else plain(below)
                for name, below in node.items()
            }

        return {"runs": list(self.runs), "spec": plain(self.spec), "provenance": plain(self.provenance)}


def differences(con: duckdb.DuckDBPyConnection, first: str, second: str) -> Differences:
    """What differs between the runs whose ids begin with ``first`` and ``second``; raises CompareError for names."""
    runs = (find_run(con, first), find_run(con, second))
    found = dict(
        (run, (json.loads(spec), json.loads(provenance)))
        for run, spec, provenance in con.execute(
            "SELECT run_id, spec::VARCHAR, provenance::VARCHAR FROM latest_runs WHERE list_contains($runs, run_id)",
            {"runs": list(runs)},
        ).fetchall()
    )
    one, other = found[runs[0]], found[runs[1]]
    return Differences(runs, difference(one[0], other[0]), difference(one[1], other[1]))


def difference(one: Any, other: Any) -> Tree:
    """The fields of two mappings that differ; mappings within are entered, lists and values are compared whole."""
    tree: Tree = {}
    for name in dict.fromkeys([*one, *other]):
        held = tuple((side[name],) if name in side else () for side in (one, other))
        left, right = held
        if left == right:
            continue
        if left and right and isinstance(left[0], Mapping) and isinstance(right[0], Mapping):
            tree[name] = difference(left[0], right[0])
        else:
            tree[name] = Sides((left, right))
    return tree
