"""The entropy of the whole distribution as a loss, per token."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from training.losses.distributions import Distribution


class EntropyLoss(NamedTuple):
    """Per token: −H, and its slope ∂(−H)/∂ log π(v) with log-probabilities as free variables."""

    loss: Float[Tensor, " n"]
    slope: Float[Tensor, "n V"]


def negative_entropy(student: Distribution) -> EntropyLoss:
    """−H = Σ_v p(v) log p(v), in nats; impossible ids add 0. By logits the gradient is p·(log p + H)."""
    entries = student.probs * student.log_probs
    return EntropyLoss(entries.sum(-1), entries + student.probs)
