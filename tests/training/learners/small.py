"""Learners over the small random model, and what their tests do to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.training.small import small_model
from training.batches import align
from training.learners.base import ViewWeights
from training.learners.hf import HFLearner
from training.learners.weights import varying
from training.method import (
    Adapter,
    EmaWeights,
    FrozenWeights,
    Optimiser,
    PhaseStartWeights,
    StudentWeights,
    SyncedWeights,
)
from training.spec import ComputeSpec

STUDENT, FROZEN, PHASE_START = StudentWeights(), FrozenWeights(), PhaseStartWeights()
SLOW = EmaWeights(teacher_update_rate=0.05)
SYNCED = SyncedWeights(every=3)
LORA = Adapter(rank=4, alpha=8.0)
BATCH = align([[7, 8, 9], [10]], [[11, 12], [13, 14, 15]], pad_id=0)

State = Mapping[str, Mapping[str, Tensor]]


def build(*weights: ViewWeights, model: Any = None, adapter: Adapter | None = None, **how: Any) -> HFLearner:
    """A learner with phase "main" unless ``optimisers`` says otherwise; the rest of ``how`` is of the ComputeSpec."""
    optimisers = how.pop("optimisers", {"main": Optimiser(learning_rate=1e-2)})
    seed = how.pop("seed", 0)
    return HFLearner(
        model or small_model(),
        optimisers,
        ComputeSpec(**how),
        [STUDENT, *weights],
        end_ids=frozenset({1}),
        pad_id=0,
        adapter=adapter,
        seed=seed,
    )


def backward(learner: HFLearner, scale: float = 1.0) -> None:
    (scale * learner.hidden(STUDENT, BATCH, grad=True).float().square().sum()).backward()


def learn(learner: HFLearner, update: int, phases: Mapping[str, int] | None = None) -> None:
    """One update: so many optimiser steps of each phase, then the end of the update."""
    for phase, steps in (phases or {"main": 1}).items():
        learner.begin_phase()
        for _ in range(steps):
            backward(learner)
            learner.step(phase)
    learner.advance(update)
    learner.synchronise()


def logits(learner: HFLearner, weights: ViewWeights) -> Tensor:
    with learner.numerics():
        return learner.head(weights)(learner.hidden(weights, BATCH, grad=False)).detach()


def parameters(learner: HFLearner, weights: ViewWeights = STUDENT) -> list[Tensor]:
    """Copies of the parameters in which these weights may differ from the start's."""
    return [parameter.detach().clone() for parameter in varying(learner._model(weights)).values()]


def fill(learner: HFLearner, weights: ViewWeights, value: float) -> None:
    with torch.no_grad():
        for parameter in varying(learner._model(weights)).values():
            parameter.fill_(value)


def perturb(learner: HFLearner, size: float, seed: int = 5) -> None:
    """Sets every parameter that learns to its own normal draws times ``size``, the adapter's A and B alike."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in varying(learner.student).values():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))


def copied(state: State) -> dict[str, dict[str, Tensor]]:
    return {file: {name: tensor.clone() for name, tensor in tensors.items()} for file, tensors in state.items()}


def through_files(state: State, folder: Path) -> dict[str, dict[str, Tensor]]:
    for file, tensors in state.items():
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / f"{file}.safetensors")
    return {file: load_file(folder / f"{file}.safetensors") for file in state}


def same(first: State, second: State) -> bool:
    """Equal to the bit, in files, names and values."""
    return {file: set(tensors) for file, tensors in first.items()} == {
        file: set(tensors) for file, tensors in second.items()
    } and all(
        torch.equal(tensor, second[file][name]) for file, named in first.items() for name, tensor in named.items()
    )
