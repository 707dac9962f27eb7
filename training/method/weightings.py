"""How much each token counts in a term."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec
from training.schedules import NonNegative


class Uniform(Spec):
    """w_t = 1."""

    kind: Literal["uniform"] = "uniform"


class UsdSoft(Spec):
    """w_t = σ((g_t − λ·d_t)/τ), g_t the divergence, d_t the difficulty (USD).

    d_t = [log p_T(a*) − log p_S(a*)]₊ at the target's likeliest id a*.
    """

    kind: Literal["usd_soft"] = "usd_soft"
    price: NonNegative = 0.0
    """λ; usually a controller's output."""
    sharpness: float = Field(0.1, gt=0)
    """τ."""
    divergence: Literal["raw", "clipped"] = "raw"
    """Whether g in the weight is taken before the entry clip or after it."""


class UsdHard(Spec):
    """w_t = 1[g_t > λ·d_t], the solution of USD's linear program."""

    kind: Literal["usd_hard"] = "usd_hard"
    price: NonNegative = 0.0
    """λ; usually a controller's output."""
    divergence: Literal["raw", "clipped"] = "raw"
    """Whether g is taken before the entry clip or after it."""


class TopTokens(Spec):
    """w_t = 1 at the max(1, ⌊keep·m⌋) tokens of each rollout of m tokens with the highest score (TIP).

    soft_or: ĥ + δ̂ − ĥ·δ̂; entropy: ĥ; overconfident: KL(target‖student)·(1 − ĥ). ĥ is the student's entropy over
    log V, cut at the batch's ``entropy_percentile`` and min-max scaled over the batch; δ̂ the min-max scaled
    divergence of the term, before clips. Min-max of a constant is 0; ties keep the earlier token.
    """

    kind: Literal["top_tokens"] = "top_tokens"
    keep: float = Field(0.2, gt=0, le=1)
    """Share of each rollout's tokens that is kept."""
    score: Literal["soft_or", "entropy", "overconfident"] = "soft_or"
    """What tokens are ranked by."""
    entropy_percentile: float = Field(0.98, gt=0, le=1)
    """Where the entropies of a batch are cut off."""


class Position(Spec):
    """w_t = ((t + 1)/T)^exponent: later tokens of a rollout of T tokens count more (position-weighted OPSD)."""

    kind: Literal["position"] = "position"
    exponent: float = Field(1.0, ge=0)
    """0 weighs all tokens alike."""


Weighting = Annotated[
    Annotated[Uniform | UsdSoft | UsdHard | TopTokens | Position, Field(discriminator="kind")], KindShorthand
]

SUCCESS = 0.5
"""A rollout passed iff its reward is this or more (``Gate``, GRSD's mixed groups)."""

Gate = Annotated[
    Literal["all", "positive_advantage", "passed", "failed"],
    Field(
        description="Which rollouts a term learns from. positive_advantage: R_i > mean of the group (SDPG); passed: "
        "R_i of 0.5 or more."
    ),
]


class Importance(Spec):
    """Multiplies each token's loss by ρ_t = π_θ(y_t)/π_old(y_t), min(ρ_t, clip) if there is a clip (SDPO's is_clip).

    Exactly 1 while a batch is used for one optimiser step. ``gradient`` lets the gradient through ρ (Skill-SD).
    """

    clip: float | None = Field(2.0, gt=0)
    """Upper bound of ρ_t; None has none."""
    gradient: bool = False
    """Whether the gradient flows through ρ_t."""
