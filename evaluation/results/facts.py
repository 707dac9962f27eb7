"""From checked lines to Arrow tables: which record goes to which database table, column by column."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from evaluation.results.lines import RECORDS, BadLine
from evaluation.results.records import COST_KEYS, StepRecord

TABLES = {
    "run": "runs",
    "plan_cell": "cells",
    "run_event": "run_events",
    "step": "step_costs",
    "rollout": "rollouts",
    "problem": "problems",
    "answer": "answers",
    "grade": "grades",
    "evaluation": "evaluations",
    "mark": "marks",
    "trace": "traces",
}
"""The table of each kind. The metrics of a step go to ``steps`` besides, one row each."""

RENAMED = {"at": "happened_at", "index": "rollout_index"}
"""Record fields whose name is reserved in SQL."""

_ARROW = {
    str: pa.string(),
    str | None: pa.string(),
    int: pa.int64(),
    int | None: pa.int64(),
    bool: pa.bool_(),
    bool | None: pa.bool_(),
    float: pa.float64(),
    float | None: pa.float64(),
    tuple[str, ...]: pa.list_(pa.string()),
}
_TIME = pa.timestamp("us")
_EPOCH_FIELDS = ("at", "created_at")
_FLOAT_COSTS = ("flop", "wall_seconds", "gpu_seconds")
_PROVENANCE = {"attempt": pa.int32(), "writer": pa.string(), "seq": pa.int64(), "written_at": _TIME}


def _columns(record: type) -> dict[str, tuple[str, pa.DataType]]:
    """Field name -> (column name, Arrow type); a dict field becomes JSON text."""
    hints = typing.get_type_hints(record)
    columns: dict[str, tuple[str, pa.DataType]] = {}
    for field in dataclasses.fields(record):
        if field.name in ("run_id", "cost") or (record is StepRecord and field.name == "metrics"):
            continue
        kind = _TIME if field.name in _EPOCH_FIELDS else _ARROW.get(hints[field.name], pa.string())
        columns[field.name] = (RENAMED.get(field.name, field.name), kind)
    return columns


_COLUMNS: dict[str, dict[str, tuple[str, pa.DataType]]] = {r.kind: _columns(r) for r in RECORDS}
_HAS_COST = {r.kind for r in RECORDS if "cost" in {f.name for f in dataclasses.fields(r)}}
_JSON_FIELDS: dict[str, tuple[str, ...]] = {
    r.kind: tuple(name for name, hint in typing.get_type_hints(r).items() if hint == dict[str, Any]) for r in RECORDS
}


def prepare(line: dict[str, Any]) -> dict[str, Any]:
    """Turn the free-form dicts of a checked line into canonical JSON text, in place.

    Raises BadLine where one holds NaN or an infinity, which JSON cannot say.
    """
    data = line["data"]
    for name in _JSON_FIELDS[line["kind"]]:
        if name in data:
            try:
                data[name] = json.dumps(data[name], allow_nan=False, sort_keys=True, separators=(",", ":"))
            except ValueError as error:
                raise BadLine(f"data.{name}: {error}") from error
    return line


def _microseconds(epoch: float) -> int:
    return round(epoch * 1_000_000)


def arrow_tables(kind: str, lines: Sequence[Mapping[str, Any]], writers: Sequence[str]) -> dict[str, pa.Table]:
    """Lines of one kind as Arrow tables keyed by database table; ``writers`` names the spool of each line."""
    data = [line["data"] for line in lines]
    columns: dict[str, pa.Array] = {"run_id": pa.array([line["run_id"] for line in lines], pa.string())}
    if kind == "answer":
        columns["answer_key"] = pa.array([line["key"] for line in lines], pa.string())
    for field, (column, arrow) in _COLUMNS[kind].items():
        values = [item.get(field) for item in data]
        if arrow is _TIME:
            values = [_microseconds(value) for value in values]
        columns[column] = pa.array(values, arrow)
    if kind in _HAS_COST:
        for name in COST_KEYS:
            costs = [item["cost"].get(name) for item in data]
            if name in _FLOAT_COSTS:
                columns[name] = pa.array(costs, pa.float64())
            else:
                columns[name] = pa.array([None if cost is None else round(cost) for cost in costs], pa.int64())
    columns |= _provenance(lines, writers)
    tables = {TABLES[kind]: pa.table(columns)}
    if kind == "step":
        gaps = [sum(value is None for value in item["metrics"].values()) for item in data]
        tables["step_costs"] = tables["step_costs"].append_column("non_finite_metrics", pa.array(gaps, pa.int64()))
        tables["steps"] = _metrics(lines, writers)
    return tables


def _provenance(lines: Sequence[Mapping[str, Any]], writers: Sequence[str]) -> dict[str, pa.Array]:
    values = {
        "attempt": [line["attempt"] for line in lines],
        "writer": list(writers),
        "seq": [line["seq"] for line in lines],
        "written_at": [_microseconds(line["at"]) for line in lines],
    }
    return {name: pa.array(values[name], arrow) for name, arrow in _PROVENANCE.items()}


def _metrics(lines: Sequence[Mapping[str, Any]], writers: Sequence[str]) -> pa.Table:
    """One row a metric; the columns of a step are repeated by run length, not value by value."""
    counts = pa.array([len(line["data"]["metrics"]) for line in lines], pa.int64()).to_numpy()
    rows = pa.array(range(len(lines)), pa.int64()).to_numpy().repeat(counts)
    repeated = pa.table(
        {
            "run_id": pa.array([line["run_id"] for line in lines], pa.string()),
            "update": pa.array([line["data"]["update"] for line in lines], pa.int64()),
            "writer": pa.array(list(writers), pa.string()),
            "seq": pa.array([line["seq"] for line in lines], pa.int64()),
        }
    ).take(pa.array(rows))
    names = [name for line in lines for name in line["data"]["metrics"]]
    values = [value for line in lines for value in line["data"]["metrics"].values()]
    return repeated.append_column("name", pa.array(names, pa.string())).append_column(
        "value", pa.array(values, pa.float64())
    )
