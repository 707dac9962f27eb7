"""What a tiny base model is made of: every number of its architecture and of its mid-training (no torch here)."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from evaluation.spec import Spec


class Recipe(Spec):
    """A Qwen3-architecture model with tied embeddings and the mid-training that makes it a base.

    Half of the mid-training items (``without_context_share``) show only the question; their digit pairs come from a
    covered part of the 100 pairs, so the model knows some sums and not others. The rest show a worked solution after
    ``<|hint|>``: a share ``random_context_share`` of those has random step results that the response must repeat, so
    only reading the context helps; the others are true ones on covered pairs. In a share ``corrupted_share`` of all
    items each step result in the response *input* is replaced by a random one with ``corruption_rate``, while the
    target stays right: the model learns to stay sane after wrong steps.
    """

    data_version: int = 1
    """Raised whenever the code that writes mid-training items or the tokenizer changes."""
    hidden_size: int = Field(96, gt=0)
    layers: int = Field(3, gt=0)
    heads: int = Field(3, gt=0)
    """Query heads; as many key-value heads."""
    head_dim: int = Field(32, ge=32)
    """vLLM's CPU build refuses less than 32."""
    mlp_size: int = Field(288, gt=0)
    rope_theta: float = Field(1e4, gt=0)
    max_positions: int = Field(256, gt=0)
    initializer_range: float = Field(0.02, gt=0)

    steps: int = Field(400, gt=0)
    batch: int = Field(48, gt=1)
    learning_rate: float = Field(3e-3, gt=0)
    final_learning_rate_share: float = Field(0.1, ge=0, le=1)
    """Cosine decay ends at this share of ``learning_rate``."""
    warmup_steps: int = Field(50, ge=0)
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)

    covered_pairs: int = Field(50, gt=0, le=100)
    """How many of the 100 ordered digit pairs are shown without context."""
    without_context_share: float = Field(0.5, ge=0, le=1)
    random_context_share: float = Field(0.5, ge=0, le=1)
    corrupted_share: float = Field(0.5, ge=0, le=1)
    corruption_rate: float = Field(0.35, ge=0, le=1)
    seed: int = Field(0, ge=0)

    def content_hash(self) -> str:
        """sha256 of the recipe's canonical JSON: the key of the built model."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


ItemKind = Literal[
    "none",
    "solution",
    "answer",
    "partial_solution",
    "facts",
    "peer_success",
    "peer_failure",
    "feedback",
    "critique",
    "peer_failure_and_remark",
    "peer_success_and_remark",
    "guidance",
    "demonstration",
    "critique_request",
]


class TinyFullRecipe(Recipe):
    """One model for both worked tasks and every kind of context (see training.base_models.contextual_items).

    The fields of ``Recipe`` keep their meaning; ``random_context_share`` is the share of contexts with invented facts,
    among the kinds that can have them.
    """

    layers: int = Field(4, gt=0)
    max_positions: int = Field(512, gt=0)
    hidden_size: int = Field(128, gt=0)
    heads: int = Field(4, gt=0)
    mlp_size: int = Field(384, gt=0)
    steps: int = Field(1400, gt=0)
    covered_pairs: int = Field(54, gt=0, le=100)
    without_context_share: float = Field(0.25, ge=0, le=1)
    random_context_share: float = Field(0.7, ge=0, le=1)

    covered_chain_sums: int = Field(60, gt=0, le=100)
    covered_products: int = Field(60, gt=0, le=100)
    """How many of the 100 one-digit sums and products of the chain task are shown without context."""
    addition_share: float = Field(0.5, ge=0, le=1)
    largest_gap: int = Field(40, ge=0)
    """Positions left out between context and response, at most: with a random gap a fact of the context is found by
    what it says and not by how far away it stands."""
    length_groups: int = Field(4, gt=0)
    """A batch is sorted by length and padded in so many groups."""
    kind_weights: dict[ItemKind, float] = Field(
        default_factory=lambda: {
            "solution": 0.7,
            "answer": 0.9,
            "partial_solution": 0.9,
            "facts": 2.4,
            "peer_success": 0.4,
            "peer_failure": 0.4,
            "feedback": 0.6,
            "critique": 0.3,
            "peer_failure_and_remark": 1.0,
            "peer_success_and_remark": 0.5,
            "guidance": 1.2,
            "demonstration": 0.4,
            "critique_request": 1.8,
        }
    )
    """How often each kind of context is drawn, relative to the others."""
