"""A method is a value: one frozen spec of views, terms and phases (no torch here).

The loss of a phase is a sum of terms,

    L = Σ_k coefficient_k · reduce_k( weight_k · D_k(target_k, student) ),

and every ablation of a paper is ``override(method, path, value)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from evaluation.names import nearest
from evaluation.samplers.base import SamplingParams
from evaluation.spec import KindShorthand, Spec
from training.contexts.specs import Context, NoContext

# --- whose weights look, and at what -----------------------------------------------------------------------------


class StudentWeights(Spec):
    """The weights being trained, as of this update."""

    kind: Literal["student"] = "student"


class FrozenWeights(Spec):
    """The weights the run started from (under LoRA: adapter off)."""

    kind: Literal["frozen"] = "frozen"


class EmaWeights(Spec):
    """Exponential moving average in fp32: θ' ← (1 − rate)·θ' + rate·θ after every update."""

    kind: Literal["ema"] = "ema"
    teacher_update_rate: float = Field(0.05, gt=0, le=1)


Weights = Annotated[Annotated[StudentWeights | FrozenWeights | EmaWeights, Field(discriminator="kind")], KindShorthand]


class View(Spec):
    """One way of looking at a rollout: whose weights, with which context in the prompt."""

    weights: Weights
    context: Context = NoContext()


# --- factors of a distillation term ------------------------------------------------------------------------------


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


class Renyi(Spec):
    """Rényi divergence of order ρ: 1/(ρ−1) · log Σ_v target(v)^ρ · student(v)^(1−ρ) (``forward``), or swapped."""

    kind: Literal["renyi"] = "renyi"
    order: float = Field(gt=0)
    direction: Literal["target||student", "student||target"] = "target||student"

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
    of: Literal["target", "student"] = "student"
    rest: Literal["tail", "renormalise"] = "tail"


Support = Annotated[Annotated[FullSupport | TopKSupport, Field(discriminator="kind")], KindShorthand]

Reduction = Literal["token_mean", "sequence_mean", "constant"]
"""token_mean: Σ over the global batch / its response tokens; sequence_mean: mean over sequences of per-sequence means;
constant: Σ / (sequences · max_new_tokens)."""


Temperature = Annotated[float, Field(gt=0)] | Literal["sampling"]
"""What logits are divided by in a term; "sampling" follows ``sampling.temperature`` (see Method.terms_of)."""


# --- terms -------------------------------------------------------------------------------------------------------


class Distill(Spec):
    """Σ_t w_t · D(target_t, student_t) on the student's own tokens (or on references, for off-policy distillation)."""

    kind: Literal["distill"] = "distill"
    of: str = "student"
    """Name of the view that learns."""
    against: str = "teacher"
    """Name of the view that is the target; no gradient reaches it."""
    divergence: Divergence = ForwardKL()
    support: Support = FullSupport()
    entry_clip: float | None = Field(None, gt=0)
    """Upper clip of each event's summand before the sum, the tail included (OPSD v3: 0.05); refused with Rényi."""
    temperature: Temperature = 1.0
    """Divides the logits of both sides."""
    reduction: Reduction = "token_mean"
    coefficient: float = 1.0
    data: Literal["rollouts", "references"] = "rollouts"

    @model_validator(mode="after")
    def _clip_needs_summands(self) -> Distill:
        if self.entry_clip is not None and isinstance(self.divergence, Renyi):
            raise ValueError("entry_clip acts on summands and Rényi has none outside its logarithm: set it to null")
        return self


class GroupAdvantage(Spec):
    """A_i = R_i − mean(R of the group), divided by (std + ``epsilon``) when ``divide_by_std`` (GRPO; off: Dr.GRPO)."""

    kind: Literal["group"] = "group"
    divide_by_std: bool = True
    epsilon: float = Field(1e-4, ge=0)


Advantage = Annotated[Annotated[GroupAdvantage, Field()], KindShorthand]


class PolicyGradient(Spec):
    """−Σ_t min(ρ_t·A, clip(ρ_t, 1−clip_low, 1+clip_high)·A), ρ_t = π(y_t)/π_old(y_t) (PPO clip)."""

    kind: Literal["policy_gradient"] = "policy_gradient"
    of: str = "student"
    advantage: Advantage = GroupAdvantage()
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.2, gt=0)
    temperature: Temperature = "sampling"
    reduction: Reduction = "token_mean"
    coefficient: float = 1.0
    data: Literal["rollouts"] = "rollouts"


class CrossEntropy(Spec):
    """−Σ_t log π(y_t) on reference solutions (SFT)."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    of: str = "student"
    reduction: Reduction = "token_mean"
    coefficient: float = 1.0
    data: Literal["references"] = "references"


Term = Annotated[Distill | PolicyGradient | CrossEntropy, Field(discriminator="kind")]


class Optimiser(Spec):
    """AdamW with linear warm-up over ``warmup_updates``, then constant."""

    learning_rate: float = Field(gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup_updates: int = Field(0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)


class Phase(Spec):
    """One optimiser step an update: its terms, summed, and the optimiser."""

    terms: dict[str, Term] = Field(min_length=1)
    optimiser: Optimiser


class Batch(Spec):
    """``prompts`` problems an update, ``group_size`` rollouts each."""

    prompts: int = Field(gt=0, le=10**6)
    group_size: int = Field(1, gt=0)


class Method(Spec):
    """One method of the field. ``METHODS[key]`` with nothing changed is the paper's method."""

    key: str
    title: str
    summary: str
    paper: str | None
    status: Literal["paper", "reading", "style", "baseline"]
    equation: str
    open_choices: dict[str, str] = {}
    """What the paper leaves open, and which reading is the default."""
    code_differences: dict[str, str] = {}
    """How the authors' code differs from their paper."""
    sampling: SamplingParams
    batch: Batch
    views: dict[str, View]
    phases: dict[str, Phase]

    @model_validator(mode="after")
    def _views_exist(self) -> Method:
        for phase_name, phase in self.phases.items():
            for name, term in phase.terms.items():
                if self.sampling.temperature == 0 and getattr(term, "temperature", None) == "sampling":
                    raise ValueError(
                        f"phases.{phase_name}.terms.{name}.temperature follows sampling.temperature, which is 0"
                    )
                wanted = [term.of] + ([term.against] if isinstance(term, Distill) else [])
                for view in wanted:
                    if view not in self.views:
                        raise ValueError(
                            f"phases.{phase_name}.terms.{name} names view {view!r}; views: {[*self.views]}"
                        )
                if not isinstance(self.views[term.of].weights, StudentWeights):
                    raise ValueError(f"phases.{phase_name}.terms.{name}.of is {term.of!r}: only student weights learn")
        if any(isinstance(t, PolicyGradient) for t in self.terms()) and self.batch.group_size < 2:
            raise ValueError("a group-relative advantage needs batch.group_size of 2 or more")
        return self

    def terms(self) -> list[Distill | PolicyGradient | CrossEntropy]:
        return [term for phase in self.phases.values() for term in phase.terms.values()]

    def terms_of(self, phase: str) -> dict[str, Distill | PolicyGradient | CrossEntropy]:
        """The terms of one phase as the loss takes them, every "sampling" temperature replaced by the number."""
        number = self.sampling.temperature
        return {
            name: term.model_copy(update={"temperature": number})
            if getattr(term, "temperature", None) == "sampling"
            else term
            for name, term in self.phases[phase].terms.items()
        }

    def uses_rollouts(self) -> bool:
        return any(term.data == "rollouts" for term in self.terms())


# --- overrides ---------------------------------------------------------------------------------------------------


class OverrideError(ValueError):
    """A path that no field answers to, or a value a field refuses."""


def override(method: Method, path: str, value: Any) -> Method:
    """``method`` with one value changed: ``override(OPSD, "views.teacher.weights", "ema")``.

    Raises OverrideError naming the path and the nearest valid name.
    """
    return override_all(method, {path: value})


def override_all(method: Method, changes: Mapping[str, Any]) -> Method:
    """``method`` with several values changed at once (validated together)."""
    data = method.model_dump()
    for path, value in changes.items():
        _set(data, path, value)
    try:
        return Method.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        first = next((entry for entry in errors if _expected(entry)), errors[0])
        where = ".".join(str(part) for part in first["loc"]) or ", ".join(changes)
        if len(changes) == 1:
            where = next(iter(changes))
        raise OverrideError(f"method {method.key!r}: {where}: {_reason(first)}") from error


def _expected(error: Mapping[str, Any]) -> list[str]:
    """The names that would have been valid, where pydantic lists them."""
    context = error.get("ctx", {})
    return re.findall(r"'([^']*)'", str(context.get("expected_tags") or context.get("expected") or ""))


def _reason(error: Mapping[str, Any]) -> str:
    names, given = _expected(error), error["input"]
    if not names:
        return error["msg"].removeprefix("Value error, ")
    word = str(given.get("kind") if isinstance(given, dict) else given)
    return f"{word!r} is not valid here{nearest(word, names)}"


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    node: Any = data
    walked: list[str] = []
    for part in [*parents, leaf]:
        if not isinstance(node, dict) or part not in node:
            here = ".".join(walked) or "the method"
            options = sorted(node) if isinstance(node, dict) else []
            raise OverrideError(f"no field {part!r} in {here} (path {path!r}){nearest(part, options)}")
        if part is leaf and len(walked) == len(parents):
            node[part] = value
            return
        node = node[part]
        walked.append(part)
