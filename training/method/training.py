"""How an update is made: optimiser, batch, rewards, adapter, phases."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from evaluation.spec import Spec
from training.method.terms import Term


class Optimiser(Spec):
    """AdamW: linear warm-up over ``warmup_updates`` steps, then ``decay`` down to ``final_share`` at ``total_updates``.

    Counts optimiser steps of its phase, which are updates as long as a batch is used for one step.
    """

    learning_rate: float = Field(gt=0)
    """Its peak."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the two moments."""
    epsilon: float = Field(1e-8, gt=0)
    """AdamW's ε."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decoupled decay."""
    warmup_updates: int = Field(0, ge=0)
    """Steps of linear warm-up."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the rate after the warm-up."""
    total_updates: int | None = Field(None, gt=0)
    """Where the decay ends; needed unless ``decay`` is constant."""
    final_share: float = Field(0.0, ge=0, le=1)
    """Share of the peak rate that is left at the end of the decay."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Longer gradients are scaled down to this norm."""

    @model_validator(mode="after")
    def _decay_has_an_end(self) -> Optimiser:
        if self.decay != "constant" and (self.total_updates or 0) <= self.warmup_updates:
            raise ValueError(f"decay {self.decay!r} needs total_updates above warmup_updates ({self.warmup_updates})")
        return self


class Phase(Spec):
    """Optimiser steps on a sum of terms, at every ``every``-th update. Phases of one update run in order.

    All phases share one AdamW state, so betas, epsilon and weight decay agree; rates and clips are each phase's own.
    """

    terms: dict[str, Term] = Field(min_length=1)
    """The loss is their sum."""
    optimiser: Optimiser
    """How its steps are made."""
    every: int = Field(1, gt=0)
    """Runs at every so-many-th update."""
    rollouts: Literal["batch", "since_last"] = "batch"
    """The update's own rollouts, or those of all updates since this phase last ran (VPD's buffer)."""


class Batch(Spec):
    """``prompts`` problems an update, ``group_size`` rollouts each."""

    prompts: int = Field(gt=0, le=10**6)
    """Problems an update."""
    group_size: int = Field(1, gt=0)
    """Rollouts of each problem."""
    step_prompts: int | None = Field(None, gt=0)
    """Problems of one optimiser step; None uses the whole batch for one step (strictly on-policy)."""
    groups: Literal["all", "mixed_rewards"] = "all"
    """mixed_rewards drops groups whose rewards are all equal and draws further problems instead (DAPO)."""
    max_draws: int = Field(10, gt=0)
    """With mixed_rewards: most batches drawn for one update; what was found by then is used."""

    @model_validator(mode="after")
    def _steps_divide(self) -> Batch:
        if self.step_prompts is not None and self.prompts % self.step_prompts:
            raise ValueError(f"step_prompts {self.step_prompts} does not divide prompts {self.prompts}")
        return self


class Overlong(Spec):
    """A penalty that grows linearly from 0 to ``penalty`` over the last ``cache_tokens`` of max_new_tokens (DAPO)."""

    cache_tokens: int = Field(gt=0)
    """Length of the stretch before max_new_tokens in which the penalty grows."""
    penalty: float = Field(1.0, ge=0)
    """The penalty at max_new_tokens."""


class Reward(Spec):
    """From a grade's score to the reward R = fail + (pass − fail)·score − penalty."""

    on_fail: float = 0.0
    """R of a score of 0."""
    on_pass: float = 1.0
    """R of a score of 1."""
    overlong: Overlong | None = None
    """Penalty on long responses; None has none."""
    truncated: Literal["keep", "drop"] = "keep"
    """drop: responses cut off at max_new_tokens give no gradient in policy-gradient terms (DAPO's overlong filter)."""


class Adapter(Spec):
    """LoRA: W + (alpha/rank)·B·A on the named linear layers; everything else is frozen."""

    rank: int = Field(64, gt=0)
    """Rank of B·A."""
    alpha: float = Field(128.0, gt=0)
    """Its product is scaled by alpha/rank."""
    layers: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the linear layers that get one."""
