"""What a distillation term is held against: divergence, support, and mixtures of targets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from evaluation.spec import KindShorthand, Spec
from training.schedules import Share


class ForwardKL(Spec):
    """KL(target ‖ student), mode-covering."""

    kind: Literal["forward_kl"] = "forward_kl"


class ReverseKL(Spec):
    """KL(student ‖ target), mode-seeking."""

    kind: Literal["reverse_kl"] = "reverse_kl"


class JSD(Spec):
    """Generalised Jensen-Shannon: β·KL(target‖m) + (1−β)·KL(student‖m), m = β·target + (1−β)·student.

    Only 0 < β < 1; the limits are 0, not the KLs, which have names of their own.
    """

    kind: Literal["jsd"] = "jsd"
    beta: float = Field(0.5, gt=0, lt=1)
    """β, the target's share in the mixture m."""


class Renyi(Spec):
    """Rényi divergence of order ρ: 1/(ρ−1) · log Σ_v target(v)^ρ · student(v)^(1−ρ) (``forward``), or swapped."""

    kind: Literal["renyi"] = "renyi"
    order: float = Field(gt=0)
    """ρ; toward 1 it becomes the KL."""
    direction: Literal["target||student", "student||target"] = "target||student"
    """Which side carries the power ρ."""

    @model_validator(mode="after")
    def _not_one(self) -> Renyi:
        if self.order == 1:
            raise ValueError("order 1 is the KL: use forward_kl or reverse_kl")
        return self


Divergence = Annotated[Annotated[ForwardKL | ReverseKL | JSD | Renyi, Field(discriminator="kind")], KindShorthand]


class FullSupport(Spec):
    """The whole vocabulary."""

    kind: Literal["full"] = "full"


class TopKSupport(Spec):
    """The k likeliest ids of ``of``; the rest is one tail event (``tail``) or dropped with renormalisation."""

    kind: Literal["top_k"] = "top_k"
    k: int = Field(100, gt=0)
    """How many ids."""
    of: Literal["target", "student"] = "student"
    """Whose likeliest ids."""
    rest: Literal["tail", "renormalise"] = "tail"
    """What becomes of the other ids."""


Support = Annotated[Annotated[FullSupport | TopKSupport, Field(discriminator="kind")], KindShorthand]


class GeometricMix(Spec):
    """log π* = share·log p_against + (1 − share)·log p_reference − log Z (SR-OPSD's target, its α is ``share``).

    With ``mix_first`` it is a linear interpolation of logits, as in SDPO's trust-region teacher (``share`` is its η
    and ``against`` the live view). ``support_first`` puts both sides on the support, tail or renormalisation
    included, and mixes then, as SR-OPSD's code does. On the full support the two are one.
    """

    kind: Literal["geometric"] = "geometric"
    reference: str = "reference"
    """Name of the view that anchors; what it sees is its own ``context``."""
    share: Share = 0.9
    """α of SR-OPSD, η of SDPO's trust region."""
    order: Literal["support_first", "mix_first"] = "support_first"
    """Whether the sides are put on the support before the mixture or after it."""


class TowardStudent(Spec):
    """z* = (1 − γ·b_t)·z_target + γ·b_t·sg[z_student], a softmax after (PAINT-style); b_t picks the positions.

    ``entropy_gap`` sets b_t = 1 at the ⌈top_share · n⌉ positions of each rollout with the largest gap of entropies,
    in the direction of ``gap``.
    """

    kind: Literal["toward_student"] = "toward_student"
    share: Share = 0.1
    """γ: 0 keeps the target, 1 makes it the student."""
    positions: Literal["all", "entropy_gap"] = "entropy_gap"
    """Which tokens are interpolated."""
    top_share: float = Field(0.1, gt=0, le=1)
    """Share of a rollout's tokens with b_t = 1."""
    gap: Literal["absolute", "target_higher", "student_higher"] = "absolute"
    """Direction of the gap of entropies."""


Mix = Annotated[Annotated[GeometricMix | TowardStudent, Field(discriminator="kind")], KindShorthand]
