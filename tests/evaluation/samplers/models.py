"""Small random models with a fixed seed for the sampler tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from evaluation.samplers.base import SampleRequest

VOCABULARY = 41
PAD = 0

_SHAPE: dict[str, Any] = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=48,
    max_position_embeddings=512,
    initializer_range=0.15,
)


LETTERS = [b"a", b"b", b"c", b"d"]
PAIRS = [one + other for one in LETTERS for other in [*LETTERS, b"e"]]
"""What ids 0 to 19 stand for; most others are one letter."""


def decode(ids: Sequence[int]) -> str:
    """Ids to text by bytes, as byte-level tokenizers do: ids 31 and 32 are the two bytes of one character."""
    pieces = dict(enumerate(PAIRS)) | {31: b"\xc3", 32: b"\xa9", 40: b""}
    content = b"".join(pieces.get(i, LETTERS[i % 4]) for i in ids)
    return content.decode("utf-8", errors="replace")


def qwen3(attention: str = "eager", **changes: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(7)
    shape: dict[str, Any] = {**_SHAPE, "tie_word_embeddings": True, "attn_implementation": attention, **changes}
    config = Qwen3Config(**shape)
    return Qwen3ForCausalLM(config).eval()


def llama(attention: str = "sdpa", **changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(8)
    shape: dict[str, Any] = {**_SHAPE, "attn_implementation": attention, **changes}
    config = LlamaConfig(**shape)
    return LlamaForCausalLM(config).eval()


def ragged_requests(count: int, *, longest: int = 19, seed: int = 0) -> list[SampleRequest]:
    """Prompts of 1 to ``longest`` random ids, no pad id among them."""
    source = random.Random(seed)
    return [
        SampleRequest(tuple(source.randrange(1, VOCABULARY) for _ in range(source.randint(1, longest))), 1000 + index)
        for index in range(count)
    ]
