"""Reductions: the factor each token's loss is multiplied by, from denominators of the *global* batch.

Every reduction is Σ_t factor_t · loss_t, so parts of a batch (chunks, micro-batches, ranks) simply add up.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.method import Reduction


def per_sequence(measure: Float[Tensor, " n"], sequence: Int[Tensor, " n"]) -> Float[Tensor, " S"]:
    """Σ of ``measure`` over each sequence (0-based ids)."""
    sequences = int(sequence.max()) + 1 if len(sequence) else 0
    return measure.new_zeros(sequences).index_add_(0, sequence, measure)


def token_factors(
    reduction: Reduction,
    weight: Float[Tensor, " n"],
    measure: Float[Tensor, " n"],
    sequence: Int[Tensor, " n"],
    total: float,
    sequences: float,
    max_new_tokens: int,
) -> Float[Tensor, " n"]:
    """Factor of each token, its weight included, fp64; 0 where ``weight`` is 0.

    ``measure`` is what the reduction counts at each token: the weights themselves, or 1 at every token that takes
    part. token_mean: w/``total``; sequence_mean: w/(Σ of the own sequence's measure · ``sequences``); constant:
    w/(``sequences`` · ``max_new_tokens``). ``total`` is Σ measure and ``sequences`` the number of sequences with a
    measure above 0, both over the global batch.
    """
    if reduction == "token_mean":
        denominator = torch.full_like(weight, total)
    elif reduction == "constant":
        denominator = torch.full_like(weight, sequences * max_new_tokens)
    else:
        denominator = per_sequence(measure, sequence)[sequence] * sequences
    # Where the denominator is 0 so are all weights it would divide.
    return torch.where(weight > 0, weight / torch.where(denominator > 0, denominator, 1.0), 0.0)
