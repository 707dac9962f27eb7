"""What a policy-gradient term multiplies log-probabilities by."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec
from training.schedules import Share


class GroupAdvantage(Spec):
    """A_i = R_i − mean(R of the group), divided by (std + ``epsilon``) when ``divide_by_std`` (GRPO; off: Dr.GRPO)."""

    kind: Literal["group"] = "group"
    divide_by_std: bool = True
    """Whether rewards are scaled by the group's standard deviation."""
    epsilon: float = Field(1e-4, ge=0)
    """Added to the standard deviation."""


class TeacherLogRatio(Spec):
    """A_t = sg[log p_against(y_t) − log π(y_t)], bounded to [low, high]: distillation on the sampled token (OPSD)."""

    kind: Literal["teacher_log_ratio"] = "teacher_log_ratio"
    against: str = "teacher"
    """Name of the view whose log-probability is the target."""
    low: float | None = None
    """Lower bound of A_t; None has none."""
    high: float | None = None
    """Upper bound of A_t; None has none."""


Advantage = Annotated[Annotated[GroupAdvantage | TeacherLogRatio, Field(discriminator="kind")], KindShorthand]


class RlsdModulation(Spec):
    """Â = A·[(1−λ) + λ·clip(w, 1−ε, 1+ε)], w = exp(sign(A)·Δ_t), Δ_t = sg[log q(y_t) − log π_old(y_t)] (RLSD).

    λ is ``share``, ε is ``bound``. A is never turned round.
    """

    kind: Literal["rlsd"] = "rlsd"
    against: str = "teacher"
    """Name of the view that moves the credit."""
    share: Share = 0.5
    """λ: 0 leaves A as it is."""
    bound: float = Field(0.2, ge=0, lt=1)
    """ε: how far from 1 the factor of a token may be."""


class GrsdModulation(Spec):
    """Â = A·max(1 + λ·ĝ·m, 0.1), ĝ = clip(u/(mean|u| + 1e-6), ±bound), u = expm1(clip(sign(A)·Δ, ±20)) (GRSD).

    Δ is the mean log-ratio of teacher to student over a turn (a single-turn response is one turn) or a token's own;
    the mean of |u| runs over the group. m is 1 for groups with a success and a failure whose row has a context, else
    the advantage stays. |u| normalised at or below ``dead_zone`` gives ĝ = 0. ``normalise`` none takes ĝ = clip(u).
    """

    kind: Literal["grsd"] = "grsd"
    against: str = "teacher"
    """Name of the view that moves the credit."""
    share: Share = 0.5
    """λ: 0 leaves A as it is."""
    bound: float = Field(0.2, gt=0)
    """Bound of |ĝ|."""
    dead_zone: float = Field(0.0, ge=0)
    """Normalised |u| up to this gives ĝ = 0."""
    level: Literal["turn", "token"] = "turn"
    """Whether Δ is a turn's mean or a token's own."""
    normalise: Literal["group", "none"] = "group"
    """What |u| is divided by."""


Modulation = Annotated[Annotated[RlsdModulation | GrsdModulation, Field(discriminator="kind")], KindShorthand]
