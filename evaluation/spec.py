"""The base of every declarative value in Stillroom: frozen, strict, serialisable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

_NUMBERS = (int, float, int | None, float | None, tuple[int, ...], tuple[float, float])


class Spec(BaseModel):
    """A frozen pydantic model that refuses unknown keys and non-finite numbers."""

    @model_validator(mode="before")
    @classmethod
    def _no_booleans_as_numbers(cls, data: Any) -> Any:
        """``true`` must not pass for 1."""
        for name, value in data.items() if isinstance(data, Mapping) else ():
            values = value if isinstance(value, list | tuple) else [value]
            known = cls.model_fields.get(name)
            if known and any(isinstance(v, bool) for v in values) and known.annotation in _NUMBERS:
                raise ValueError(f"{name}: true and false are not numbers")
        return data

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def _expand_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


KindShorthand: Any = BeforeValidator(_expand_kind)
"""Lets a tagged union accept the bare tag: ``"ema"`` means ``{"kind": "ema"}`` with its defaults."""

__all__ = ["Annotated", "KindShorthand", "Spec"]
