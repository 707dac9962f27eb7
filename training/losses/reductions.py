"""Reductions: the factor each token's loss is multiplied by, from denominators of the *global* batch.

Every reduction is Σ_t factor_t · loss_t, so parts of a batch (chunks, micro-batches, ranks) simply add up.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.method import Reduction


def kept_lengths(mask: Bool[Tensor, " n"], sequence: Int[Tensor, " n"]) -> Int[Tensor, " S"]:
    """Number of kept tokens of each sequence (0-based ids)."""
    return torch.bincount(sequence[mask], minlength=int(sequence.max()) + 1 if len(sequence) else 0)


def token_factors(
    reduction: Reduction,
    mask: Bool[Tensor, " n"],
    sequence: Int[Tensor, " n"],
    tokens: float,
    sequences: float,
    max_new_tokens: int,
) -> Float[Tensor, " n"]:
    """Factor of each token, fp64; 0 where masked.

    token_mean: 1/``tokens``; sequence_mean: 1/(own kept tokens · ``sequences``); constant:
    1/(``sequences`` · ``max_new_tokens``). ``tokens`` and ``sequences`` count the global batch.
    """
    kept = mask.to(torch.float64)
    if not bool(mask.any()):
        return kept
    if reduction == "token_mean":
        return kept / tokens
    if reduction == "constant":
        return kept / (sequences * max_new_tokens)
    lengths = kept_lengths(mask, sequence).to(torch.float64).clamp(min=1)
    return kept / (lengths[sequence] * sequences)
