"""Cross-entropy on given tokens (SFT), per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class LabelLoss(NamedTuple):
    """Per token: the loss, and ∂ loss/∂ log π(y_t)."""

    loss: Float[Tensor, " n"]
    slope: Float[Tensor, " n"]


def cross_entropy(log_prob: Float[Tensor, " n"]) -> LabelLoss:
    """−log π(y_t), in nats; ``log_prob`` is log π of the given token at each position."""
    return LabelLoss(-log_prob, torch.full_like(log_prob, -1.0))
