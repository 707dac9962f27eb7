"""The method itself, and its numbers at one update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, model_validator

from evaluation.samplers.base import SamplingParams
from evaluation.spec import Spec
from training.contexts.specs import PeerSuccessContext
from training.method.advantages import GroupAdvantage, GrsdModulation
from training.method.controllers import Controller
from training.method.targets import TowardStudent
from training.method.terms import AnyTerm, CrossEntropy, Distill, PolicyGradient, Preference, SampledKL
from training.method.training import Adapter, Batch, Phase, Reward
from training.method.views import StudentWeights, View
from training.method.weightings import SUCCESS
from training.schedules import Controlled, Schedule

Outputs = Mapping[str, Mapping[str, float]]
"""Controller name -> output name -> number."""


class Method(Spec):
    """One method of the field. ``METHODS[key]`` with nothing changed is the paper's method."""

    key: str
    """Its name in METHODS."""
    title: str
    """Its name in tables."""
    summary: str
    """One sentence."""
    paper: str | None
    """arXiv id, with the version where it matters."""
    status: Literal["paper", "reading", "style", "baseline"]
    """paper: text and code read; reading: part is inferred; style: after an abstract; baseline: a yardstick."""
    equation: str
    """The loss in one line."""
    open_choices: dict[str, str] = {}
    """What the paper leaves open, and which reading is the default."""
    code_differences: dict[str, str] = {}
    """How the authors' code differs from their paper."""
    ablations: dict[str, tuple[Any, ...]] = {}
    """The paper's ablations and controls: dotted path -> values other than the default."""
    sampling: SamplingParams
    """How rollouts are drawn."""
    batch: Batch
    """How many problems and rollouts an update takes."""
    reward: Reward = Reward()
    """What a grade is worth."""
    rollout_view: str = "student"
    """The view that draws the rollouts; any other than the student makes the method off-policy."""
    adapter: Adapter | None = None
    """None trains all weights."""
    views: dict[str, View]
    """Ways of looking at a rollout, by name."""
    phases: dict[str, Phase]
    """Kinds of optimiser steps, by name, in order."""
    controllers: dict[str, Controller] = {}
    """State that numbers may follow, by name."""

    @model_validator(mode="after")
    def _consistent(self) -> Method:
        self._check_terms()
        self._check_sampling()
        self._check_rewards()
        self._check_groups()
        self._check_phases()
        self._check_controlled()
        return self

    def _check_terms(self) -> None:
        if self.rollout_view not in self.views:
            raise ValueError(f"rollout_view names view {self.rollout_view!r}; views: {[*self.views]}")
        for place, term in self._named_terms():
            if self.sampling.temperature == 0 and getattr(term, "temperature", None) == "sampling":
                raise ValueError(f"{place}.temperature follows sampling.temperature, which is 0")
            for view in (term.of, *term.targets()):
                if view not in self.views:
                    raise ValueError(f"{place} names view {view!r}; views: {[*self.views]}")
            if not isinstance(self.views[term.of].weights, StudentWeights):
                raise ValueError(f"{place}.of is {term.of!r}: only student weights learn")
            if term.of in term.targets():
                raise ValueError(f"{place} holds view {term.of!r} against itself")
            if isinstance(term, Distill) and isinstance(term.mix, TowardStudent) and term.data == "references":
                raise ValueError(f"{place}.mix toward_student is for rollouts")

    def _check_sampling(self) -> None:
        """Estimates on drawn tokens need to know who drew them, and at which temperature."""
        drawn_at = self.sampling.temperature or 1.0  # what a greedy sampler reports is at temperature 1
        for place, term in self._named_terms():
            clip = getattr(term, "sampler_importance_clip", None)
            temperature = getattr(term, "temperature", "sampling")
            if clip is not None and temperature not in ("sampling", drawn_at):
                raise ValueError(
                    f"{place}.sampler_importance_clip compares probabilities at temperature {temperature:g} with the "
                    f"sampler's at {drawn_at:g}: set {place}.temperature to sampling, or the clip to null"
                )
            if self.rollout_view == term.of or not isinstance(term, PolicyGradient | SampledKL):
                continue
            if isinstance(term, SampledKL) or clip is None:
                fix = f" or {place}.sampler_importance_clip to a number" if isinstance(term, PolicyGradient) else ""
                raise ValueError(
                    f"{place} estimates from tokens that view {term.of!r} drew, and rollout_view is "
                    f"{self.rollout_view!r}: set rollout_view to {term.of!r}{fix}"
                )

    def _check_rewards(self) -> None:
        """A pass is a success and a failure none, for everything that asks."""
        overlong = self.reward.overlong
        if overlong is not None and overlong.cache_tokens > self.sampling.max_new_tokens:
            raise ValueError(
                f"reward.overlong.cache_tokens {overlong.cache_tokens} is longer than sampling.max_new_tokens "
                f"{self.sampling.max_new_tokens}: every response would be penalised"
            )
        for place, threshold in self._thresholds():
            if not self.reward.on_fail < threshold <= self.reward.on_pass:
                raise ValueError(
                    f"{place} takes rewards of {threshold:g} or more for successes, and reward.on_fail is "
                    f"{self.reward.on_fail:g}, reward.on_pass {self.reward.on_pass:g}: set them below it and not below"
                )

    def _thresholds(self) -> Iterator[tuple[str, float]]:
        """Where rewards are split into successes and failures, and at what reward."""
        for place, term in self._named_terms():
            if getattr(term, "gate", "all") in ("passed", "failed"):
                yield f"{place}.gate", SUCCESS
            if isinstance(term, Preference):
                yield f"{place}.success_threshold", term.success_threshold
            if isinstance(term, PolicyGradient) and isinstance(term.modulation, GrsdModulation):
                yield f"{place}.modulation", SUCCESS
        for name in sorted(self.views_used()):
            context = self.views[name].context
            if isinstance(context, PeerSuccessContext):
                yield f"views.{name}.context.threshold", context.threshold

    def _check_groups(self) -> None:
        for place, term in self._named_terms():
            relative = isinstance(term, PolicyGradient) and isinstance(term.advantage, GroupAdvantage)
            if (relative or getattr(term, "gate", "all") == "positive_advantage") and self.batch.group_size < 2:
                raise ValueError(f"{place} is group-relative and needs batch.group_size of 2 or more")
        if self.batch.groups == "mixed_rewards" and self.batch.group_size < 2:
            raise ValueError("batch.groups mixed_rewards needs batch.group_size of 2 or more")

    def _check_phases(self) -> None:
        shared = {(p.optimiser.betas, p.optimiser.epsilon, p.optimiser.weight_decay) for p in self.phases.values()}
        if not self.phases or len(shared) > 1:
            raise ValueError("phases share one optimiser state: betas, epsilon and weight_decay must agree")
        if all(phase.every > 1 for phase in self.phases.values()):
            raise ValueError("at least one phase must run at every update (every: 1)")
        homes: dict[str, str] = {}
        for name, phase in self.phases.items():
            for term in phase.terms:
                if homes.setdefault(term, name) != name:
                    raise ValueError(
                        f"phases.{name}.terms.{term}: phase {homes[term]!r} has this term, and metrics go by its name"
                    )
            preferences = [isinstance(term, Preference) for term in phase.terms.values()]
            if any(preferences) and self.batch.step_prompts is not None:
                raise ValueError(f"phases.{name}: preference needs whole batches: set batch.step_prompts to null")

    def _check_controlled(self) -> None:
        for place, value in _walk(self, ""):
            if isinstance(value, Controlled):
                known = {name: controller.outputs() for name, controller in self.controllers.items()}
                if value.output not in known.get(value.controller, ()):
                    raise ValueError(
                        f"{place} follows output {value.output!r} of controller {value.controller!r}; there are {known}"
                    )
        names = {name for phase in self.phases.values() for name in phase.terms}
        for name, controller in self.controllers.items():
            term = getattr(controller, "term", None)
            if term is not None and term not in names:
                raise ValueError(f"controllers.{name}.term names {term!r}; terms: {sorted(names)}")

    def _named_terms(self) -> Iterator[tuple[str, AnyTerm]]:
        for phase_name, phase in self.phases.items():
            for name, term in phase.terms.items():
                yield f"phases.{phase_name}.terms.{name}", term

    def terms(self) -> list[AnyTerm]:
        return [term for _, term in self._named_terms()]

    def at(self, update: int, outputs: Outputs | None = None) -> Method:
        """The method of one update: schedules, controllers' outputs and "sampling" temperatures as plain numbers."""
        number = self.sampling.temperature

        def plain(name: str, value: Any) -> Any:
            if isinstance(value, Schedule):
                return value.at(update)
            if isinstance(value, Controlled):
                return (outputs or {})[value.controller][value.output]
            return number if name == "temperature" and value == "sampling" else value

        return _mapped(self, plain)

    def terms_of(self, phase: str) -> dict[str, AnyTerm]:
        """The terms of one phase as the loss takes them: at update 1, without controllers."""
        return self.at(1).phases[phase].terms

    def uses_rollouts(self) -> bool:
        """Whether an update draws rollouts."""
        return any(term.data == "rollouts" or _aligned(term) for term in self.terms()) or any(
            controller.kind == "alignment" for controller in self.controllers.values()
        )

    def views_used(self) -> set[str]:
        """The names of the views that terms look through or that draw."""
        return {self.rollout_view, *(view for term in self.terms() for view in (term.of, *term.targets()))}


def _aligned(term: AnyTerm) -> bool:
    return isinstance(term, CrossEntropy) and term.alignment is not None


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, BaseModel):
        inner: Any = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        inner = value.items()
    else:
        return
    for name, part in inner:
        yield from _walk(part, f"{path}.{name}" if path else str(name))


def _mapped(value: Any, plain: Callable[[str, Any], Any], name: str = "") -> Any:
    """``value`` with every leaf replaced by ``plain(field name, leaf)``; unchanged parts are shared."""
    value = plain(name, value)
    if isinstance(value, BaseModel):
        fields = {field: getattr(value, field) for field in type(value).model_fields}
        changed = {field: new for field, old in fields.items() if (new := _mapped(old, plain, field)) is not old}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, dict):
        mapped = {key: _mapped(part, plain, str(key)) for key, part in value.items()}
        return mapped if any(mapped[key] is not value[key] for key in value) else value
    return value
