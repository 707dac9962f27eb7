"""Whose weights look, and at what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec
from training.contexts.specs import Context, NoContext


class StudentWeights(Spec):
    """The weights being trained, as of this optimiser step."""

    kind: Literal["student"] = "student"


class FrozenWeights(Spec):
    """The weights the run started from (under LoRA: adapter off)."""

    kind: Literal["frozen"] = "frozen"


class EmaWeights(Spec):
    """Exponential moving average in fp32: θ' ← (1 − rate)·θ' + rate·θ once after every update."""

    kind: Literal["ema"] = "ema"
    teacher_update_rate: float = Field(0.05, gt=0, le=1)
    """How much of the student enters after every update."""


class SyncedWeights(Spec):
    """A copy of the student, taken before update 1 and again after every ``every`` updates."""

    kind: Literal["synced"] = "synced"
    every: int = Field(1, gt=0)
    """Updates between two copies."""


class PhaseStartWeights(Spec):
    """The student as it was when the current phase of the current update began (the sliding prior of VPD)."""

    kind: Literal["phase_start"] = "phase_start"


Weights = Annotated[
    Annotated[
        StudentWeights | FrozenWeights | EmaWeights | SyncedWeights | PhaseStartWeights, Field(discriminator="kind")
    ],
    KindShorthand,
]


class View(Spec):
    """One way of looking at a rollout: whose weights, with which context in the prompt."""

    weights: Weights
    """Whose weights look."""
    context: Context = NoContext()
    """What the prompt shows beside the problem."""
    thinking: bool | None = None
    """The chat template's thinking switch; None leaves it to the template."""
    template: str | None = None
    """User turn with context, fields {problem} and {context}; None takes the model's own."""
    max_context_tokens: int | None = Field(None, gt=0)
    """Longer contexts are cut at their end, which is counted; None never cuts and refuses what does not fit."""
