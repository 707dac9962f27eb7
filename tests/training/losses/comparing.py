"""The product's objective held against the reference."""

from __future__ import annotations

import torch

from tests.training.losses.ragged import Ragged, gradient_of, product_term
from tests.training.losses.reference import ReferenceTerm


def compare(data: Ragged, name: str, term: ReferenceTerm, value_tolerance: float, gradient_tolerance: float) -> None:
    """Value to ``value_tolerance`` · (1 + |L|), gradients for hidden states and head to an absolute tolerance."""
    value, by_hidden, by_weight = data.expected(name, term)
    terms = {name: product_term(term)}
    result = data.run(terms, weighed=True, denominators=data.counts(terms))
    result.loss.backward()
    assert abs(result.loss.item() - value.item()) <= value_tolerance * (1 + abs(value.item())), term
    torch.testing.assert_close(gradient_of(data.student).double(), by_hidden, atol=gradient_tolerance, rtol=0)
    torch.testing.assert_close(gradient_of(data.head.weight).double(), by_weight, atol=gradient_tolerance, rtol=0)
    for other in (data.teacher, data.reference, data.teacher_head.weight, data.reference_head.weight):
        assert other.grad is None
