"""Numbers that may change from update to update: schedules, and the outputs of controllers (no torch here)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from evaluation.spec import Spec


class Linear(Spec):
    """From ``start`` at update 1 to ``end`` at update ``updates`` + 1, then constant."""

    kind: Literal["linear"] = "linear"
    start: float
    """Value at update 1."""
    end: float
    """Value from update ``updates`` + 1 on."""
    updates: int = Field(gt=0)
    """Length of the way."""

    def at(self, update: int) -> float:
        share = min(1.0, (update - 1) / self.updates)
        return self.start + (self.end - self.start) * share

    def values(self) -> Iterator[float]:
        yield from (self.start, self.end)


class Ramp(Spec):
    """peak · min(1, k/warmup) · min(1, (total − k)/decay), never below 0 (SDPG, the schedule of β).

    A length of 0 leaves its factor out.
    """

    kind: Literal["ramp"] = "ramp"
    peak: float
    """The value between rise and fall."""
    warmup_updates: int = Field(0, ge=0)
    """Length of the rise."""
    decay_updates: int = Field(0, ge=0)
    """Length of the fall."""
    total_updates: int = Field(gt=0)
    """Where the fall ends."""

    def at(self, update: int) -> float:
        up = min(1.0, update / self.warmup_updates) if self.warmup_updates else 1.0
        down = min(1.0, max(0.0, (self.total_updates - update) / self.decay_updates)) if self.decay_updates else 1.0
        return self.peak * up * down

    def values(self) -> Iterator[float]:
        yield from (0.0, self.peak)


class Steps(Spec):
    """Piecewise constant: ``values_from`` holds (first update, value) pairs, the first of them from update 1."""

    kind: Literal["steps"] = "steps"
    values_from: tuple[tuple[int, float], ...] = Field(min_length=1)
    """Pairs of a first update and the value from there."""

    @model_validator(mode="after")
    def _ordered(self) -> Steps:
        firsts = [first for first, _ in self.values_from]
        if firsts[0] != 1 or firsts != sorted(set(firsts)):
            raise ValueError(f"values_from must begin with update 1 and rise, got {firsts}")
        return self

    def at(self, update: int) -> float:
        return [value for first, value in self.values_from if first <= update][-1]

    def values(self) -> Iterator[float]:
        yield from (value for _, value in self.values_from)


class Controlled(Spec):
    """An output of one of the method's controllers."""

    kind: Literal["controlled"] = "controlled"
    controller: str
    """Name in the method's controllers."""
    output: str
    """Name of the output."""


Schedule = Linear | Ramp | Steps
Dynamic = float | Annotated[Linear | Ramp | Steps | Controlled, Field(discriminator="kind")]
"""A number, a schedule over updates, or a controller's output. ``Method.at`` turns all three into numbers."""


def _bounded(low: float, high: float) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        numbers = () if isinstance(value, Controlled) else value.values() if isinstance(value, Schedule) else (value,)
        for number in numbers:
            if not low <= number <= high:
                raise ValueError(f"{number:g} is outside {low:g} to {high:g}")
        return value

    return check


Share = Annotated[Dynamic, AfterValidator(_bounded(0.0, 1.0))]
"""A dynamic number in 0 to 1."""
NonNegative = Annotated[Dynamic, AfterValidator(_bounded(0.0, float("inf")))]
"""A dynamic number of 0 or more."""
