"""Spool lines as the ingestor sees them: checked against the records, one by one."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from evaluation.results.records import COST_KEYS, GradeRecord, Record
from evaluation.results.spool import LINE_VERSION

RECORDS: tuple[type, ...] = typing.get_args(Record)
"""Every kind of record there is."""

# The line types are made from the records at run time, which a static checker cannot follow.
_literal: Any = Literal
_union: Any = typing.Union
_annotated: Any = Annotated

_STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")
_TIMES = ("at", "created_at")
_MOST = 9e18
"""Bound of a cost: token counts are kept as 64-bit integers, and no run spends that much of anything else either."""
_Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Verdict = Literal["pass", "fail", "not_scored"]


class BadLine(ValueError):
    """A line that is no fact; the message says why."""


def _field_type(record: type, name: str, hint: Any) -> Any:
    """The type of a record's field inside a line, where every number may have become null for not being finite."""
    if record is GradeRecord and name == "verdict":
        return _Verdict
    if name == "cost":
        fields = {key: NotRequired[Annotated[float, Field(ge=0, le=_MOST)] | None] for key in COST_KEYS}
        return types.new_class("Cost", (TypedDict,), {}, lambda body: body.update(_body(fields)))
    if hint is int:
        return _Integer
    if hint == int | None:
        return _Integer | None
    if hint is float and name not in _TIMES:
        return float | None
    if hint is float:
        # Within the years 1 to 9999, which is what a timestamp can hold.
        return Annotated[float, Field(ge=-62_000_000_000, le=253_000_000_000)]
    return hint


def _line_type(record: type) -> Any:
    hints = typing.get_type_hints(record)
    data: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        if field.name == "run_id":
            continue
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        kind = _field_type(record, field.name, hints[field.name])
        data[field.name] = NotRequired[kind] if has_default else kind
    data_type = types.new_class(f"{record.__name__}Data", (TypedDict,), {}, lambda body: body.update(_body(data)))
    line: dict[str, Any] = {
        "v": _literal[LINE_VERSION],
        "writer": str,
        "seq": _Integer,
        "attempt": Annotated[int, Field(ge=1, lt=2**31)],
        "kind": _literal[record.kind],
        "run_id": str,
        "key": str,
        "at": _field_type(record, "at", float),
        "pid": _Integer,
        "role": str,
        "data": data_type,
    }
    return types.new_class(f"{record.__name__}Line", (TypedDict,), {}, lambda body: body.update(_body(line)))


def _body(annotations: dict[str, Any]) -> dict[str, Any]:
    return {"__annotations__": annotations, "__pydantic_config__": _STRICT, "__module__": __name__}


_LINE: TypeAdapter[dict[str, Any]] = TypeAdapter(
    _annotated[_union[tuple(_line_type(record) for record in RECORDS)], Field(discriminator="kind")]
)

_VALIDATE = _LINE.validator.validate_json
"""Straight to the core: the adapter's own method costs a tenth of the whole for nothing."""


def parse_line(line: bytes) -> dict[str, Any]:
    """The envelope of one line, ``data`` checked and its missing optional fields absent.

    Raises BadLine for anything else: no JSON, an unknown kind or version, a missing field, a wrong type, a number
    beyond 64 bits.
    """
    try:
        return _VALIDATE(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:] or first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise BadLine(f"{place}: {first['msg']}{more}" if place else first["msg"]) from error
