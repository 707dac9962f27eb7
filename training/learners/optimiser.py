"""One AdamW for all phases of a method: shared moments, each phase's own rate, clip and step count."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from training.learners.base import NonFiniteGradientError, Tensors
from training.method import Optimiser

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_STEPS = "steps/"


def learning_rate(optimiser: Optimiser, step: int) -> float:
    """Learning rate η_s of a phase's optimiser step s, counted from 1.

    With W = warmup_updates, T = total_updates, f = final_share and p = min(1, (s − W)/(T − W)):
    s ≤ W: η·s/W; then constant: η; linear: η·(1 − (1 − f)·p); cosine: η·(f + (1 − f)·(1 + cos πp)/2).
    So η_W = η, and η_s = f·η from s = T on.
    """
    rate, warmup = optimiser.learning_rate, optimiser.warmup_updates
    if step < warmup:
        return rate * step / warmup
    if optimiser.decay == "constant" or optimiser.total_updates is None:
        return rate
    progress = min(1.0, (step - warmup) / (optimiser.total_updates - warmup))
    remaining = 1 - progress if optimiser.decay == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return rate * (optimiser.final_share + (1 - optimiser.final_share) * remaining)


class PhasedAdamW:
    """AdamW over named parameters. Raises ValueError where the phases' betas, epsilon or weight decay differ."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], phases: Mapping[str, Optimiser]) -> None:
        shared = {(phase.betas, phase.epsilon, phase.weight_decay) for phase in phases.values()}
        if len(shared) != 1:
            raise ValueError("phases share one optimiser state: betas, epsilon and weight_decay must agree")
        ((betas, epsilon, weight_decay),) = shared
        self._parameters = dict(parameters)
        self._phases = dict(phases)
        self.steps = dict.fromkeys(phases, 0)
        self._adamw = torch.optim.AdamW(
            self._parameters.values(),
            lr=0.0,  # set at every step
            betas=betas,
            eps=epsilon,
            weight_decay=weight_decay,
            foreach=False,
            fused=False,
        )

    def step(self, phase: str, gradient_scale: float) -> dict[str, float]:
        """One step of ``phase`` along the gradients times ``gradient_scale``; drops the gradients.

        Returns grad_norm (scaled, before clipping) and learning_rate. Raises NonFiniteGradientError before anything
        but the gradients has changed, ValueError for an unknown phase or a negative scale.
        """
        if phase not in self._phases:
            raise ValueError(f"there is no phase {phase!r}; phases: {sorted(self._phases)}")
        if gradient_scale < 0:
            raise ValueError(f"phase {phase!r}: a gradient scale of {gradient_scale} would climb the loss")
        spec, count = self._phases[phase], self.steps[phase] + 1
        norm = self._clip(f"phase {phase!r}, optimiser step {count}", spec.max_grad_norm, gradient_scale)
        rate = learning_rate(spec, count)
        for group in self._adamw.param_groups:
            group["lr"] = rate
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        self.steps[phase] = count
        return {"grad_norm": norm, "learning_rate": rate}

    def _clip(self, place: str, most: float, scale: float) -> float:
        gradients = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        if scale != 1:
            for gradient in gradients.values():
                gradient.mul_(scale)
        norm = nn.utils.get_total_norm(list(gradients.values()), foreach=False)
        value = float(norm)
        if not math.isfinite(value):
            bad = [name for name, gradient in gradients.items() if not bool(torch.isfinite(gradient).all())]
            self._adamw.zero_grad(set_to_none=True)
            raise NonFiniteGradientError(
                f"{place}: the gradient norm is {value} (not finite in {', '.join(bad[:3]) or 'the sum'}); "
                "the weights were left as they were. Lower the learning rate or look at the batch's rollouts"
            )
        nn.utils.clip_grads_with_norm_(list(self._parameters.values()), most, norm, foreach=False)
        return value

    # --- resuming ------------------------------------------------------------------------------------------------

    def state(self) -> Tensors:
        """Moments as ``<moment>/<parameter>`` (they share memory), step counts as ``steps/<phase>``."""
        tensors = {f"{_STEPS}{phase}": torch.tensor(count) for phase, count in self.steps.items()}
        for name, parameter in self._parameters.items():
            for key, value in self._adamw.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value.detach()
        return tensors

    def check(self, tensors: Tensors) -> None:
        """Raises ValueError where ``tensors`` are not a state of these phases and parameters."""
        phases = {name.removeprefix(_STEPS) for name in tensors if name.startswith(_STEPS)}
        if phases != set(self._phases):
            raise ValueError(f"the optimiser's state is of phases {sorted(phases)}, here are {sorted(self._phases)}")
        known = {f"{key}/{name}" for key in _MOMENTS for name in self._parameters}
        unknown = sorted(name for name in tensors if not name.startswith(_STEPS) and name not in known)
        if unknown:
            raise ValueError(f"the optimiser's state is of another model: it holds {unknown[0]!r}")
        for name, parameter in self._parameters.items():
            moments = [key for key in _MOMENTS if f"{key}/{name}" in tensors]
            if moments and len(moments) < len(_MOMENTS):
                raise ValueError(f"the optimiser's state of {name} holds only {moments}")
            for key in moments[1:]:
                if tensors[f"{key}/{name}"].shape != parameter.shape:
                    raise ValueError(f"{key}/{name} does not have the shape {list(parameter.shape)} of its parameter")

    def load(self, tensors: Tensors) -> None:
        """Takes over a copy of ``tensors``, which ``check`` accepts; drops the gradients."""
        self.check(tensors)
        self._adamw.zero_grad(set_to_none=True)
        self._adamw.state.clear()
        for name, parameter in self._parameters.items():
            # A parameter that never had a gradient has no state.
            if f"step/{name}" in tensors:
                self._adamw.state[parameter] = {
                    key: tensors[f"{key}/{name}"].clone().to("cpu" if key == "step" else parameter.device)
                    for key in _MOMENTS
                }
        self.steps = {phase: int(tensors[f"{_STEPS}{phase}"]) for phase in self._phases}
