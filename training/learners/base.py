"""The learner port: what an update needs of whatever holds the weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from evaluation.samplers.base import Sampler
from training.batches import ViewBatch
from training.method import EmaWeights, FrozenWeights, StudentWeights, View

ViewWeights = StudentWeights | FrozenWeights | EmaWeights
Tensors = dict[str, Tensor]


class NonFiniteGradientError(ArithmeticError):
    """An update was refused because its gradient holds NaN or infinity; the weights are as before it."""


class Learner(Protocol):
    """Holds the student and the weights of the other views; computes hidden states; steps the optimiser."""

    device: torch.device
    context_length: int
    hidden_size: int
    parameters: int

    def sampler(self) -> Sampler:
        """Draws from the student as of now."""
        ...

    def synchronise(self) -> None:
        """Brings what ``sampler`` draws from up to the student's weights."""
        ...

    def hidden(self, weights: ViewWeights, batch: ViewBatch, *, grad: bool) -> Tensor:
        """[N, D] final hidden states (after the final norm) that predict the response tokens of ``batch``."""
        ...

    def head(self, weights: ViewWeights) -> nn.Module:
        """The module that maps hidden states of these weights to logits."""
        ...

    def numerics(self) -> AbstractContextManager[object]:
        """The numerical mode (autocast or not) that student hidden states and the loss are computed in."""
        ...

    def step(self, update: int) -> Mapping[str, float]:
        """One optimiser step for the gradients so far (``update`` counts from 1), then the moving averages.

        Returns grad_norm (before clipping) and learning_rate. Raises NonFiniteGradientError.
        """
        ...

    def state(self) -> dict[str, Tensors]:
        """Everything a resumed run needs, as tensors by file name (without suffix)."""
        ...

    def load_state(self, state: Mapping[str, Tensors]) -> None:
        """Takes over what ``state`` gave; raises ValueError where names or shapes do not fit."""
        ...


def views_used(views: Mapping[str, View], names: set[str]) -> list[ViewWeights]:
    """The weights of the named views, each once, in the order of ``views``."""
    found: list[ViewWeights] = []
    for name, view in views.items():
        if name in names and view.weights not in found:
            found.append(view.weights)
    return found
