"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """``ok`` is True, False (a study cannot run or results are damaged), or None (optional and absent, or a warning).

    ``fix`` is what to type or do about it; empty where there is nothing to do.
    """

    name: str
    ok: bool | None
    detail: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.ok is False and not self.fix:
            raise ValueError(f"the failing check {self.name!r} must say what to do about it")
