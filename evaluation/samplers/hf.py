"""Sampling from any Hugging Face causal language model with a decode loop of our own.

Rows that end leave the batch at once (the cache is compacted in place) and waiting requests take their places, so
that ragged lengths do not waste decode steps. No vocabulary is masked: where the model's head is wider than the
tokenizer, ids outside the tokenizer can be drawn, as the model's own distribution says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from evaluation.samplers.decoding import Decoding
from evaluation.samplers.stopping import Decode

SUPPORTED_LAYERS = {"full_attention", "sliding_attention"}


class HFSampler:
    """The Sampler port over a model object that the caller owns.

    ``model`` is used as it is: its device, dtype and attention implementation. While sampling it is in evaluation mode
    under ``torch.inference_mode``; afterwards each module's training flag is as before. ``end_ids`` end a completion
    (besides the stops of SamplingParams), ``pad_id`` fills prompts on the left and never enters a result, ``max_rows``
    bounds the rows decoded at once. Stop texts need ``decode``. Equal prompts of one call are prefilled once.

    The same call on the same weights and machine returns the same bits. Another batch composition changes rounding
    only, as another batch size does in any forward: float32 log-probabilities move by 1e-5 or so, and both are as
    close to float64 as a plain forward is (5e-5 at worst on the tiny base, whose logits are large).
    """

    def __init__(
        self, model: nn.Module, *, end_ids: frozenset[int], pad_id: int, max_rows: int, decode: Decode | None = None
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be positive, got {max_rows}")
        config: Any = model.config
        unknown = set(getattr(config, "layer_types", None) or ()) - SUPPORTED_LAYERS
        if unknown:
            raise ValueError(f"HFSampler cannot decode layers of type {sorted(unknown)}; it supports attention layers")
        self.model = model
        self.end_ids = end_ids
        self.pad_id = pad_id
        self.max_rows = max_rows
        self.decode = decode

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One completion for each request, in the order of the requests.

        Raises ValueError for an empty prompt, an id outside the vocabulary, a prompt that leaves no room for
        ``max_new_tokens`` within the model's positions, or stop texts without ``decode``.
        """
        _validate(self.model, requests, params)
        if not requests:
            return []
        with _evaluating(self.model), torch.inference_mode():
            decoding = Decoding(
                self.model,
                requests,
                params,
                end_ids=self.end_ids,
                pad_id=self.pad_id,
                max_rows=self.max_rows,
                decode=self.decode,
            )
            return decoding.run()


def _validate(model: Any, requests: Sequence[SampleRequest], params: SamplingParams) -> None:
    vocabulary = model.get_input_embeddings().num_embeddings
    positions = getattr(model.config, "max_position_embeddings", None)
    for index, request in enumerate(requests):
        if not request.prompt_ids:
            raise ValueError(f"request {index}: the prompt is empty")
        if not (min(request.prompt_ids) >= 0 and max(request.prompt_ids) < vocabulary):
            raise ValueError(f"request {index}: a prompt id lies outside the model's {vocabulary} ids")
        asked = (request.params or params).max_new_tokens
        needed = len(request.prompt_ids) + asked
        if positions is not None and needed > positions:
            raise ValueError(
                f"request {index}: {len(request.prompt_ids)} prompt tokens + max_new_tokens {asked} "
                f"exceed the model's {positions} positions: shorten the prompt or lower max_new_tokens"
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each module's own flag restored after."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
