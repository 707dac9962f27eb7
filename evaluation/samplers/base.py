"""The sampler port: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field, model_validator

from evaluation.spec import Spec


class SamplingParams(Spec):
    """How completions are drawn. ``temperature`` 0 is greedy decoding."""

    max_new_tokens: int = Field(gt=0)
    """Completions that reach this length are cut off."""
    temperature: float = Field(1.0, ge=0)
    """What logits are divided by; 0 is greedy decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draws from the smallest set of tokens with this much probability; 1 keeps all."""
    top_k: int = Field(0, ge=0)
    """Draws from so many likeliest tokens; 0 keeps the whole vocabulary."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Leaves out tokens below this share of the likeliest token's probability; 0 keeps all."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a completion, besides the model's own end-of-turn ids."""
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    """Sequences of ids that end a completion."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion, wherever the borders of its tokens lie; graded is what comes before them."""

    @model_validator(mode="after")
    def _stops_are_not_empty(self) -> SamplingParams:
        if "" in self.stop or () in self.stop_sequences:
            raise ValueError("stop and stop_sequences: an empty one would end every completion at once: remove it")
        return self

    def graded(self, text: str) -> str:
        """``text`` up to the first of ``stop`` in it."""
        return text[: min((place for stop in self.stop if (place := text.find(stop)) >= 0), default=len(text))]


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One completion to draw. Its random draws depend on (``seed``, position) only, never on the batch."""

    prompt_ids: tuple[int, ...]
    seed: int
    params: SamplingParams | None = None
    """None takes those of the call; requests of one call may differ in everything."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One drawn completion.

    ``token_ids`` include the end token, or the tokens of a stop, where one was drawn; ``logprobs`` are the
    log-probabilities (natural log) of those tokens under softmax(logits / temperature) on the full vocabulary, before
    top-p, top-k and min-p (at temperature 0: under softmax(logits)).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


def seed_of(text: str) -> int:
    """0 to 2^64 − 1: a stable hash of what a request is for, so that it can be drawn again alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Sampler(Protocol):
    """Draws completions from a causal language model."""

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One completion for each request, in the order of the requests, by its own parameters or else ``params``."""
        ...
