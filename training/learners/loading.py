"""Loading a causal language model from its folder, once per process, and fixing the process's numerics."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
import torch.utils.deterministic
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from training.base_models import ResolvedModel
from training.rendering import Renderer
from training.spec import ComputeSpec

KEPT_BASES = 2
"""Base models that stay in memory between the runs of one process."""

_BASES: OrderedDict[tuple[str, str], PreTrainedModel] = OrderedDict()


def fix_numerics(compute: ComputeSpec) -> torch.device:
    """Sets threads and deterministic kernels (where there are any) for this process; returns the device to work on."""
    torch.set_num_threads(compute.threads)
    # cuBLAS is deterministic only with a fixed workspace, chosen before its first call.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic: Any = torch.utils.deterministic
    # Filling every new tensor with NaN finds reads of uninitialised memory; it changes no result.
    deterministic.fill_uninitialized_memory = False
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_base(path: Path, content_hash: str, device: torch.device) -> PreTrainedModel:
    """The model of folder ``path`` in fp32 on ``device``: frozen, in evaluation mode, shared, never to be changed.

    Raises ValueError for a folder that holds an adapter or no causal language model, or one whose logits are not its
    output head applied to its final hidden states (soft-capped or scaled logits).
    """
    key = (content_hash, str(device))
    if key in _BASES:
        _BASES.move_to_end(key)
        return _BASES[key]
    if (path / "adapter_config.json").exists():
        # transformers would take the weights from the place the adapter names and put the adapter on them.
        raise ValueError(f"{path} holds an adapter: merge it into its base and save the merged model in a folder")
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no causal language model that transformers can load: {error}") from error
    model = model.to(device).eval().requires_grad_(False)
    _check_head(model, path)
    _BASES[key] = model
    while len(_BASES) > KEPT_BASES:
        _BASES.popitem(last=False)
    return model


def load_renderer(model: ResolvedModel, base: PreTrainedModel, system_prompt: str | None) -> Renderer:
    """The renderer of the model's own tokenizer and generation settings."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model.path, local_files_only=True)
    positions = base.config.max_position_embeddings
    return Renderer.for_model(tokenizer, model, system_prompt, base.generation_config, positions)


def _check_head(model: PreTrainedModel, path: Path) -> None:
    ids = torch.arange(2, device=model.device)[None]
    head = model.get_output_embeddings()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        hidden = model.base_model(input_ids=ids).last_hidden_state
        same = head is not None and torch.equal(head(hidden), logits)
    if not same:
        raise ValueError(
            f"{path}: the logits of {type(model).__name__} are not its output head applied to its final hidden "
            "states (soft-capped or scaled logits?), which the losses here rely on: use another model"
        )
