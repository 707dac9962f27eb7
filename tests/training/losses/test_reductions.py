"""Reductions by hand on sequences of 3 and 1 kept tokens, and with weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.losses.reductions import token_factors
from training.method import Reduction

SEQUENCE = torch.tensor([0, 0, 0, 0, 1, 1, 2])
MASK = torch.tensor([1, 1, 0, 1, 0, 1, 0], dtype=torch.float64)
# Sequence 0 keeps 3 tokens, sequence 1 keeps 1, sequence 2 keeps none.
WEIGHT = torch.tensor([0.5, 0, 0, 1.5, 0, 0.25, 0], dtype=torch.float64)
# Weights of 2 and 0.25 in all.


def factors(reduction: Reduction, total: float = 4.0, sequences: float = 2.0) -> Tensor:
    return token_factors(reduction, MASK, MASK, SEQUENCE, total, sequences, 10)


@pytest.mark.parametrize(
    ("reduction", "long", "short"),
    [
        ("token_mean", 1 / 4, 1 / 4),  # 4 kept tokens
        ("sequence_mean", 1 / 3 / 2, 1 / 2),  # 2 sequences; each is the mean of its own
        ("constant", 1 / (2 * 10), 1 / (2 * 10)),  # 2 sequences · 10 tokens
    ],
)
def test_whole_batch(reduction: Reduction, long: float, short: float) -> None:
    expected = torch.tensor([long, long, 0, long, 0, short, 0], dtype=torch.float64)
    torch.testing.assert_close(factors(reduction), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("reduction", "by_weights", "by_tokens"),
    [
        # Σw = 2.25; or 4 tokens.
        ("token_mean", [0.5 / 2.25, 1.5 / 2.25, 0.25 / 2.25], [0.5 / 4, 1.5 / 4, 0.25 / 4]),
        # Mean over 2 sequences of Σwℓ/2 and Σwℓ/0.25; or of Σwℓ/3 and Σwℓ/1.
        ("sequence_mean", [0.5 / 2 / 2, 1.5 / 2 / 2, 1 / 2], [0.5 / 3 / 2, 1.5 / 3 / 2, 0.25 / 2]),
        ("constant", [0.5 / 20, 1.5 / 20, 0.25 / 20], [0.5 / 20, 1.5 / 20, 0.25 / 20]),
    ],
)
def test_weights(reduction: Reduction, by_weights: list[float], by_tokens: list[float]) -> None:
    for measure, total, expected in ((WEIGHT, 2.25, by_weights), (MASK, 4.0, by_tokens)):
        result = token_factors(reduction, WEIGHT, measure, SEQUENCE, total, 2.0, 10)
        full = torch.zeros(7, dtype=torch.float64)
        full[[0, 3, 5]] = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(result, full, rtol=1e-15, atol=0)


def test_denominators_are_those_of_the_global_batch() -> None:
    # The same micro-batch inside a batch of 40 tokens and 10 sequences: everything but own lengths shrinks.
    for reduction, ratio in (("token_mean", 4 / 40), ("sequence_mean", 2 / 10), ("constant", 2 / 10)):
        torch.testing.assert_close(factors(reduction, 40.0, 10.0), factors(reduction) * ratio)


def test_nothing_kept_gives_zeros_not_nan() -> None:
    nothing = torch.zeros_like(MASK)
    for reduction in ("token_mean", "sequence_mean", "constant"):
        assert torch.equal(token_factors(reduction, nothing, nothing, SEQUENCE, 0.0, 0.0, 0), nothing)
        assert torch.equal(token_factors(reduction, nothing, MASK, SEQUENCE, 4.0, 2.0, 10), nothing)
    empty = torch.zeros(0)
    assert token_factors("token_mean", empty, empty, torch.zeros(0, dtype=torch.long), 0.0, 0.0, 1).shape == (0,)
