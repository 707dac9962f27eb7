"""Copies of a base model, and what of them differs from it: all weights, or under LoRA the adapter alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from training.learners.adapters import adapted, adapter_parameters, adapter_scaling
from training.learners.base import Tensors
from training.method import Adapter

SCALING = "adapter_scaling"
"""Name under which a file of adapter weights holds alpha/rank, which no shape tells."""


def student_copy(base: PreTrainedModel, adapter: Adapter | None, *, seed: int) -> PreTrainedModel:
    """The model a run trains, as it starts: ``base`` copied, or its weights shared under an adapter from ``seed``."""
    return trainable_copy(base) if adapter is None else adapted(base, adapter, seed=seed)


def trainable_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A copy of ``base`` that learns, still in evaluation mode."""
    return copy.deepcopy(base).requires_grad_(True).eval()


def low_precision_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A bf16 copy of ``base`` that does not learn."""
    copied: Any = copy.deepcopy(base)
    return copied.to(torch.bfloat16).requires_grad_(False)


def varying(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The parameters in which the copies of one base differ, in a fixed order; tied ones once."""
    return adapter_parameters(model) or dict(model.named_parameters())


def assign(target: PreTrainedModel, source: PreTrainedModel) -> None:
    """Sets ``target`` to ``source``, another copy of the same base; the dtype stays the target's."""
    with torch.no_grad():
        for own, other in zip(varying(target).values(), varying(source).values(), strict=True):
            own.copy_(other)


def weights_of(model: PreTrainedModel) -> Tensors:
    """What a checkpoint holds of ``model``; the tensors share the model's memory.

    Parameters and persistent buffers, tied ones once. Of a model with an adapter: the adapter's parameters and its
    scaling; the rest is the base's.
    """
    parameters = {name: parameter.detach() for name, parameter in varying(model).items()}
    scaling = adapter_scaling(model)
    if scaling is not None:
        return {**parameters, SCALING: torch.tensor(scaling, dtype=torch.float64)}
    seen = {tensor.data_ptr() for tensor in parameters.values()}
    buffers = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name not in parameters and tensor.data_ptr() not in seen
    }
    return {**parameters, **buffers}


def check_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError where names, shapes, dtypes or the adapter's scaling of ``weights`` are not the model's."""
    own = weights_of(model)
    if set(own) != set(weights):
        different = sorted(set(own) ^ set(weights))
        raise ValueError(f"the weights are of another model: {len(different)} names differ, first {different[0]!r}")
    for name, tensor in own.items():
        given = weights[name]
        if tensor.shape != given.shape:
            raise ValueError(f"{name} is {list(given.shape)} in the weights and {list(tensor.shape)} here")
        if tensor.dtype != given.dtype:
            raise ValueError(f"{name} is {given.dtype} in the weights and {tensor.dtype} here")
    if SCALING in own and float(own[SCALING]) != float(weights[SCALING]):
        raise ValueError(
            f"the adapter was trained with alpha/rank {float(weights[SCALING]):g}, here it is {float(own[SCALING]):g}"
        )


def load_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Copies ``weights``, named as in ``weights_of``, into ``model``. Raises what check_weights raises."""
    check_weights(model, weights)
    with torch.no_grad():
        for name, tensor in weights_of(model).items():
            if name != SCALING:
                tensor.copy_(weights[name])
