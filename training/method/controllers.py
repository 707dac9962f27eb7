"""State that a method carries from update to update and that its numbers may follow (``schedules.Controlled``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec


class UsdController(Spec):
    """USD's two dual variables, moved once after every update by the same load, λ first.

    load = Σ_t w_t·d_t / N over the response tokens of ``term``; λ ← max(0, λ + η_λ·(load − ε));
    β ← clip(β + η_β·(ε − load), β_min, 1). Outputs ``price`` (λ) and ``share`` (β).
    """

    kind: Literal["usd"] = "usd"
    term: str = "distill"
    """Name of the term whose load is held to the capacity."""
    capacity: float = Field(0.3, gt=0)
    """ε."""
    price_rate: float = Field(0.1, ge=0)
    """η_λ; 0 holds λ."""
    share_rate: float = Field(0.03, ge=0)
    """η_β; 0 holds β."""
    initial_price: float = Field(0.0, ge=0)
    """λ before the first update."""
    initial_share: float = Field(0.8, ge=0, le=1)
    """β before the first update."""
    min_share: float = Field(0.1, ge=0, le=1)
    """β_min, the lower bound of β."""

    def outputs(self) -> tuple[str, ...]:
        return ("price", "share")


class AlignmentController(Spec):
    """Running strength of the anchor of SDS: output ``weight``.

    w ← (1 − rate)·w + rate·mean_i(1 − similarity(ŷ_i, y*_i)).
    """

    kind: Literal["alignment"] = "alignment"
    similarity: Literal["token_f1", "rouge_l", "edit_distance", "exact_match"] = "token_f1"
    """How rollout and reference are compared."""
    rate: float = Field(0.1, gt=0, le=1)
    """How fast the weight follows."""
    initial_weight: float = Field(1.0, ge=0, le=1)
    """The weight before the first update."""

    def outputs(self) -> tuple[str, ...]:
        return ("weight",)


Controller = Annotated[Annotated[UsdController | AlignmentController, Field(discriminator="kind")], KindShorthand]
