"""The base of every declarative value in Stillroom: frozen, strict, serialisable."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Spec(BaseModel):
    """A frozen pydantic model that refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def _expand_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


KindShorthand: Any = BeforeValidator(_expand_kind)
"""Lets a tagged union accept the bare tag: ``"ema"`` means ``{"kind": "ema"}`` with its defaults."""

__all__ = ["Annotated", "KindShorthand", "Spec"]
