"""Reductions by hand on sequences of 3 and 1 kept tokens."""

from __future__ import annotations

import pytest
import torch

from training.losses.reductions import token_factors
from training.method import Reduction

SEQUENCE = torch.tensor([0, 0, 0, 0, 1, 1, 2])
MASK = torch.tensor([True, True, False, True, False, True, False])
# Sequence 0 keeps 3 tokens, sequence 1 keeps 1, sequence 2 keeps none.


@pytest.mark.parametrize(
    ("reduction", "long", "short"),
    [
        ("token_mean", 1 / 4, 1 / 4),  # 4 kept tokens
        ("sequence_mean", 1 / 3 / 2, 1 / 2),  # 2 sequences; each is the mean of its own
        ("constant", 1 / (2 * 10), 1 / (2 * 10)),  # 2 sequences · 10 tokens
    ],
)
def test_whole_batch(reduction: Reduction, long: float, short: float) -> None:
    factors = token_factors(reduction, MASK, SEQUENCE, tokens=4.0, sequences=2.0, max_new_tokens=10)
    expected = torch.tensor([long, long, 0, long, 0, short, 0], dtype=torch.float64)
    torch.testing.assert_close(factors, expected, rtol=1e-15, atol=0)


def test_denominators_are_those_of_the_global_batch() -> None:
    # The same micro-batch inside a batch of 40 tokens and 10 sequences: everything but own lengths shrinks.
    for reduction, ratio in (("token_mean", 4 / 40), ("sequence_mean", 2 / 10), ("constant", 2 / 10)):
        whole = token_factors(reduction, MASK, SEQUENCE, tokens=4.0, sequences=2.0, max_new_tokens=10)
        part = token_factors(reduction, MASK, SEQUENCE, tokens=40.0, sequences=10.0, max_new_tokens=10)
        torch.testing.assert_close(part, whole * ratio)


def test_nothing_kept_gives_zeros_not_nan() -> None:
    for reduction in ("token_mean", "sequence_mean", "constant"):
        factors = token_factors(
            reduction, torch.zeros_like(MASK), SEQUENCE, tokens=0.0, sequences=0.0, max_new_tokens=0
        )
        assert torch.equal(factors, torch.zeros(7, dtype=torch.float64))
    empty = torch.zeros(0, dtype=torch.long)
    assert token_factors("token_mean", empty.bool(), empty, tokens=0.0, sequences=0.0, max_new_tokens=1).shape == (0,)
