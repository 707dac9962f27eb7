"""LoRA: low-rank adapters over a base model whose weights are shared, never copied and never changed.

W + (alpha/rank)·B·A on the named linear layers (Hu et al., arXiv:2106.09685, section 4.1).
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel

from training.method import Adapter

_NAME = "default"


def adapted(base: PreTrainedModel, adapter: Adapter, *, seed: int) -> PreTrainedModel:
    """A model with modules of its own around the very parameters of ``base``, and a fresh adapter that learns.

    A is uniform in ±1/√(inputs) as ``seed`` says, B is zero, so the model computes exactly what ``base`` computes.
    The global random state stays as it was. Evaluation mode; adapters have the dtype of ``base``.
    Raises ValueError for a layer that ``base`` does not have or that cannot carry an adapter.
    """
    _check_layers(base, adapter)
    model: Any = copy.deepcopy(base, {id(parameter): parameter for parameter in base.parameters()})
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,  # pyrefly: ignore[bad-argument-type]
        lora_dropout=0.0,
        target_modules=list(adapter.layers),
        bias="none",
    )
    with torch.random.fork_rng(devices=[base.device] if base.device.type == "cuda" else []):
        inject_adapter_in_model(config, model, adapter_name=_NAME)
    _initialise(model, base.dtype, seed)
    return model.eval()


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The adapter's parameters by name; empty for a model without one."""
    return {name: p for name, p in model.named_parameters() if ".lora_A." in name or ".lora_B." in name}


def adapter_scaling(model: nn.Module) -> float | None:
    """alpha/rank of the model's adapter, None for a model without one."""
    return next((float(layer.scaling[_NAME]) for layer in model.modules() if isinstance(layer, LoraLayer)), None)


def _initialise(model: nn.Module, dtype: torch.dtype, seed: int) -> None:
    # peft draws A from the global state; a run's start must follow from its seed alone, on every device.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapter_parameters(model).items():
            values = torch.zeros(parameter.shape)
            if ".lora_A." in name:
                bound = 1 / math.sqrt(parameter.shape[1])
                values.uniform_(-bound, bound, generator=generator)
            parameter.data = values.to(parameter.device, dtype)


def _check_layers(base: PreTrainedModel, adapter: Adapter) -> None:
    named: Any = dict(base.named_modules())
    head = base.get_output_embeddings()
    linear = {name for name, module in named.items() if isinstance(module, nn.Linear) and module is not head}
    for layer in adapter.layers:
        found = [name for name in named if name == layer or name.endswith(f".{layer}")]
        if any(named[name] is head for name in found):
            raise ValueError(f"adapter.layers names {layer!r}, the output head, which stays frozen: leave it out")
        if not found or not linear.issuperset(found):
            known = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise ValueError(
                f"adapter.layers names {layer!r}, but {type(base).__name__} has no linear layer of that name; "
                f"it has {', '.join(known) or 'none'}"
            )
