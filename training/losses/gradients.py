"""The chain from log-probabilities to logits, once for every loss."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from training.losses.distributions import Distribution


def by_logits(
    slope: Float[Tensor, "n k"], ids: Int[Tensor, "n k"] | None, student: Distribution
) -> Float[Tensor, "n V"]:
    """∂ℓ/∂z(v) = G(v) − p_S(v)·Σ_u G(u), for G = ∂ℓ/∂ log p_S and log p_S = log softmax(z).

    ``slope`` holds G at ``ids`` (None: at the whole vocabulary in order); G is 0 elsewhere.
    """
    result = student.probs * -slope.sum(-1, keepdim=True)
    return result.add_(slope) if ids is None else result.scatter_add_(-1, ids, slope)
