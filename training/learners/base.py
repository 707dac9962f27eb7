"""The learner port: what an update needs of whatever holds the weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from evaluation.samplers.base import Sampler
from training.batches import ViewBatch
from training.method import (
    EmaWeights,
    FrozenWeights,
    PhaseStartWeights,
    StudentWeights,
    SyncedWeights,
    View,
)

ViewWeights = StudentWeights | FrozenWeights | EmaWeights | SyncedWeights | PhaseStartWeights
Tensors = dict[str, Tensor]

STUDENT = StudentWeights()


class NonFiniteGradientError(ArithmeticError):
    """An update was refused because its gradient holds NaN or infinity; the weights are as before it."""


class Learner(Protocol):
    """Holds the student and the weights of the other views; computes hidden states; steps the optimiser."""

    device: torch.device
    context_length: int
    hidden_size: int
    parameters: int
    trained_parameters: int

    def sampler(self, weights: ViewWeights = STUDENT) -> Sampler:
        """Draws from the student as of the last ``synchronise``, or from other weights of the views as of now."""
        ...

    def synchronise(self) -> None:
        """Brings what ``sampler()`` draws from up to the student's weights."""
        ...

    def hidden(self, weights: ViewWeights, batch: ViewBatch, *, grad: bool) -> Tensor:
        """[N, D] final hidden states (after the final norm) that predict the response tokens of ``batch``.

        Only student weights record a graph, and only with ``grad``. Raises ValueError for weights not asked for.
        """
        ...

    def head(self, weights: ViewWeights) -> nn.Module:
        """The module that maps hidden states of these weights to logits."""
        ...

    def numerics(self) -> AbstractContextManager[object]:
        """The numerical mode (autocast or not) that student hidden states and the loss are computed in."""
        ...

    def begin_phase(self) -> None:
        """Says that a phase of an update begins: phase-start weights become the student's."""
        ...

    def step(self, phase: str, *, gradient_scale: float = 1.0) -> Mapping[str, float]:
        """One optimiser step of ``phase`` along the gradients so far times ``gradient_scale``; drops the gradients.

        Returns grad_norm (scaled, before clipping) and learning_rate, which follows the phase's own count of steps.
        Raises NonFiniteGradientError; weights, averages, moments and counts are then as before.
        """
        ...

    def advance(self, update: int) -> None:
        """Ends update number ``update`` (from 1): averages move once, synced weights when ``every`` divides it.

        Between updates phase-start weights are the student's.
        """
        ...

    def state(self) -> dict[str, Tensors]:
        """Everything that the next update needs, as tensors by file name (without suffix); between updates only."""
        ...

    def load_state(self, state: Mapping[str, Tensors]) -> None:
        """Takes over a copy of what ``state`` gave.

        Raises ValueError, with nothing changed, where views, phases, adapter, names, shapes or dtypes do not fit.
        """
        ...


def views_used(views: Mapping[str, View], names: set[str]) -> list[ViewWeights]:
    """The weights of the named views, each once, in the order of ``views``."""
    found: list[ViewWeights] = []
    for name, view in views.items():
        if name in names and view.weights not in found:
            found.append(view.weights)
    return found
