"""Which runs a table is about: plans or single runs, and filters on anything that a run was given."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.names import UnknownRunError, nearest, run_meant
from evaluation.results.plans import CompareError, find_plan

if TYPE_CHECKING:
    import duckdb

BASE = "base"
"""Method of the run of the untrained model. Filters leave it in: it is what the others are measured against."""

_CONDITION = re.compile(r"([^=!<>]+?)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SelectedRun:
    """A run with its place in the table."""

    plan: str
    label: str
    axes: str
    method: str
    is_control: bool
    seed: int
    run_id: str
    base_run_id: str | None
    status: str
    is_archived: bool
    retention: tuple[str, ...]
    """Benchmarks it is asked before and after training only."""

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.plan, self.label, self.axes


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs of a table in its order, and what to call them."""

    title: str
    plan_hash: str
    runs: tuple[SelectedRun, ...]
    filters: tuple[str, ...]
    n_filtered: int
    """Runs that the filters left out."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``path operator value``, as typed."""

    text: str
    path: str
    operator: str
    value: Any


def select_runs(
    con: duckdb.DuckDBPyConnection,
    *,
    plans: Sequence[str] = (),
    runs: Sequence[str] = (),
    where: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Selection:
    """The runs of ``plans`` (none: of the plan recorded last), or those whose ids begin with ``runs``.

    ``where`` holds conditions (see ``parse_condition``) and ``tags`` tags of runs or plans; a run must meet all of
    them. Runs of the untrained model stay in. Raises CompareError for names and paths that are not there.
    """
    conditions = [parse_condition(text) for text in where] + [Condition(f"tag {tag}", "tags", "=", tag) for tag in tags]
    if runs and plans:
        raise CompareError("name plans or single runs, not both")
    if runs:
        found = [find_run(con, prefix) for prefix in runs]
        title, plan_hash = f"{len(dict.fromkeys(found))} runs", ""
        rows = _rows(con, _LAST_CELLS, found)
    else:
        named = [find_plan(con, plan) for plan in plans or (None,)]
        title, plan_hash = ", ".join(name for name, _ in named), ",".join(edition for _, edition in named)
        rows = _rows(con, _PLAN_CELLS, [name for name, _ in named])
    kept = rows
    if conditions:
        kept = _filtered(con, rows, conditions)
    seen: set[tuple[str, ...]] = set()
    order = []
    for run, _ in kept:
        # Plans that share a run (the untrained model's above all) show it once.
        if (run.run_id,) not in seen or run.method != BASE:
            order.append(run)
        seen.add((run.run_id,))
    return Selection(title, plan_hash, tuple(order), tuple(c.text for c in conditions), len(rows) - len(kept))


_FACTS = """
    SELECT c.plan, c.label, c.axes::VARCHAR AS axes, r.method, c.is_control, r.seed, c.run_id, c.base_run_id,
           coalesce(s.status, 'unknown') AS status, coalesce(m.is_archived, false) AS is_archived,
           coalesce(from_json(r.spec -> '$.evaluation.retention', '["VARCHAR"]'), []) AS retention,
           c.overrides::VARCHAR AS overrides, list_concat(c.tags, coalesce(m.tags, [])) AS tags, r.model
    FROM ({cells}) c
    JOIN latest_runs r USING (run_id)
    LEFT JOIN run_status s USING (run_id)
    LEFT JOIN run_marks m USING (run_id)
    ORDER BY list_position($names, {name}), c.position, c.label, c.axes, r.seed, c.run_id
"""
_PLAN_CELLS = _FACTS.format(cells="SELECT * FROM plan_cells WHERE list_contains($names, plan)", name="c.plan")
_LAST_CELLS = _FACTS.format(
    cells="""SELECT * FROM latest_cells WHERE list_contains($names, run_id)
             QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY written_at DESC, writer DESC, seq DESC) = 1""",
    name="c.run_id",
)

_Row = tuple[SelectedRun, dict[str, Any]]
"""A run and the facts about it that are not in its specification."""


def _rows(con: duckdb.DuckDBPyConnection, sql: str, names: Sequence[str]) -> list[_Row]:
    rows = []
    for *facts, overrides, tags, model in con.execute(sql, {"names": list(dict.fromkeys(names))}).fetchall():
        run = SelectedRun(*facts[:-1], retention=tuple(facts[-1]))
        more = {"overrides": json.loads(overrides), "axes": json.loads(run.axes), "tags": tags, "model": model}
        rows.append((run, more))
    return rows


def find_run(con: duckdb.DuckDBPyConnection, prefix: str) -> str:
    """The one run whose id begins with ``prefix``; raises CompareError for none and for several."""
    try:
        return run_meant(prefix, [row[0] for row in con.execute("SELECT run_id FROM latest_runs").fetchall()])
    except UnknownRunError as error:
        raise CompareError(str(error)) from error


# --- conditions ----------------------------------------------------------------------------------------------------


def parse_condition(text: str) -> Condition:
    """``path=value``, also with ``!=``, ``<``, ``<=``, ``>``, ``>=``; raises CompareError.

    The path leads into the run's specification (``budget.updates``), its method (``views.teacher.weights``), the
    plan's axes and changes (``axes.…``, ``overrides.…``), or is one of method, model, seed, label, plan, status, tags,
    run_id. ``*`` stands for any one name. The value is read as JSON where it is JSON, else as text. A part of a
    method that has a ``kind`` is equal to it; a list is equal to each thing in it.
    """
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise CompareError(f"--where {text!r}: write PATH=VALUE, e.g. views.teacher.weights=ema or seed<3")
    path, operator, typed = found[1].strip(), found[2], found[3].strip()
    try:
        value = json.loads(typed)
    except json.JSONDecodeError:
        value = typed
    if operator in ("<", "<=", ">", ">=") and not _is_number(value):
        raise CompareError(f"--where {text!r}: {operator} compares numbers, and {typed!r} is none")
    return Condition(text, path, operator, value)


def flatten(value: Any, place: str = "") -> dict[str, Any]:
    """Dotted path -> leaf. A mapping with a ``kind`` is a leaf, too: the kind; a list is a leaf and not entered."""
    if not isinstance(value, Mapping):
        return {place: value}
    leaves = {place: value["kind"]} if place and "kind" in value else {}
    for name, item in value.items():
        leaves |= flatten(item, f"{place}.{name}" if place else str(name))
    return leaves


def _filtered(con: duckdb.DuckDBPyConnection, rows: Sequence[_Row], conditions: Sequence[Condition]) -> list[_Row]:
    specs = dict(
        con.execute(
            "SELECT run_id, spec::VARCHAR FROM latest_runs WHERE list_contains($runs, run_id)",
            {"runs": [run.run_id for run, _ in rows]},
        ).fetchall()
    )
    facts = {id(more): _facts_of(run, more, json.loads(specs[run.run_id])) for run, more in rows}
    known = {path for run, more in rows for path in facts[id(more)]}
    chosen = {condition: _paths(condition, known) for condition in conditions}
    return [
        (run, more)
        for run, more in rows
        if run.method == BASE or all(_meets(c, paths, facts[id(more)]) for c, paths in chosen.items())
    ]


def _facts_of(run: SelectedRun, more: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: getattr(run, name) for name in ("plan", "label", "method", "seed", "status", "run_id")}
    given = {name: more[name] for name in ("tags", "model")}
    return {**flatten(spec), **flatten({"axes": more["axes"], "overrides": more["overrides"]}), **own, **given}


def _paths(condition: Condition, known: Iterable[str]) -> list[str]:
    """The known paths that a condition names: its path from the top, else inside the method."""
    for path in (condition.path, f"method.{condition.path}"):
        parts = path.split(".")
        found = [
            name
            for name in known
            if name == path or ("*" in parts and len(parts) == name.count(".") + 1 and _is_like(name.split("."), parts))
        ]
        if found:
            return found
    names = sorted({name.removeprefix("method.") for name in known})
    ending = [name for name in names if name.endswith(f".{condition.path}")]
    raise CompareError(
        f"--where {condition.text!r}: no run has {condition.path!r}{nearest(condition.path, ending or names)}"
    )


def _is_like(names: Sequence[str], parts: Sequence[str]) -> bool:
    return all(part == "*" or fnmatch.fnmatchcase(name, part) for name, part in zip(names, parts, strict=True))


def _meets(condition: Condition, paths: Sequence[str], facts: Mapping[str, Any]) -> bool:
    """Whether one of the run's values meets the condition; a run without the path has no value and is unequal."""
    values = [facts[path] for path in paths if path in facts]
    if condition.operator == "!=":
        return not any(_equal(value, condition.value) for value in values)
    if condition.operator == "=":
        return any(_equal(value, condition.value) for value in values)
    compare = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }[condition.operator]
    return any(_is_number(value) and compare(value, condition.value) for value in values)


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return value == wanted or any(_equal(item, wanted) for item in value)
    if _is_number(value) and _is_number(wanted):
        return float(value) == float(wanted)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    # "003" is JSON for nothing and "1e3" for a number: a text is equal to what was typed for it.
    return value == wanted or (isinstance(value, str) and not isinstance(wanted, str) and value == json.dumps(wanted))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
