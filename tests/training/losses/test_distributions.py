"""Normalisation, precision and impossible ids."""

from __future__ import annotations

import math

import pytest
import torch

from training.losses.distributions import IMPOSSIBLE, check_shared, from_log_probs, softmax


def test_by_hand() -> None:
    # logits (ln 1, ln 3), so p = (1/4, 3/4); at temperature 1/2 the ratio is squared, p = (1/10, 9/10).
    logits = torch.tensor([[0.0, math.log(3)]])
    torch.testing.assert_close(softmax(logits).probs, torch.tensor([[0.25, 0.75]]))
    torch.testing.assert_close(softmax(logits, 0.5).probs, torch.tensor([[0.1, 0.9]]))
    torch.testing.assert_close(softmax(logits).log_probs.exp(), softmax(logits).probs)
    # −¼ ln ¼ − ¾ ln ¾ = ln 4 − ¾ ln 3
    assert softmax(logits).entropy().item() == pytest.approx(math.log(4) - 0.75 * math.log(3), abs=1e-6)
    assert softmax(logits).at(torch.tensor([1])).item() == pytest.approx(math.log(0.75), abs=1e-6)


def test_geometric_midpoint_by_hand() -> None:
    # The mixture of P = (1/2, 1/2) and R = (9/10, 1/10) halfway in log-probabilities: √(P·R) normalised is
    # (√0.45, √0.05) / (√0.45 + √0.05) = (3, 1) / 4.
    p, r = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    torch.testing.assert_close(softmax((p + r) / 2).probs, torch.tensor([[0.75, 0.25]]))


def test_low_precision_is_upcast_first_and_float64_is_kept() -> None:
    logits = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    assert softmax(logits.bfloat16()).log_probs.dtype == torch.float32
    assert softmax(logits.double()).log_probs.dtype == torch.float64
    torch.testing.assert_close(
        softmax(logits.bfloat16(), 0.7).probs, torch.softmax(logits.bfloat16().float() / 0.7, -1)
    )


@pytest.mark.parametrize("spread", [1.0, 3.0, 10.0])
def test_normaliser_is_exact_at_a_large_vocabulary(spread: float) -> None:
    logits = spread * torch.randn(8, 151_936, generator=torch.Generator().manual_seed(1))
    result = softmax(logits)
    exact = torch.log_softmax(logits.double(), -1)
    error = result.log_probs.double() - exact
    # One unit in the last place of log-probabilities near −100 is 8e-6; the mean error is a bias of every divergence.
    assert error.abs().max() < 1e-5
    assert (exact.exp() * error).sum(-1).abs().max() < 6e-7
    assert (result.probs.double().sum(-1) - 1).abs().max() < 5e-7


def test_impossible_ids_have_probability_exactly_zero() -> None:
    result = softmax(torch.tensor([[0.0, -torch.inf, 0.0]]))
    assert result.has_impossible
    assert result.probs[0, 1] == 0 and result.log_probs[0, 1] == IMPOSSIBLE
    assert result.entropy().item() == pytest.approx(math.log(2), abs=1e-6)
    assert not softmax(torch.zeros(1, 3)).has_impossible


@pytest.mark.parametrize("bad", [-torch.inf, torch.inf, torch.nan])
def test_a_row_without_a_distribution_is_an_error(bad: float) -> None:
    logits = torch.zeros(3, 2)
    logits[1] = bad
    with pytest.raises(ValueError, match="token row 1"):
        softmax(logits)


def test_one_sided_impossible_ids_are_an_error_that_says_where() -> None:
    target = softmax(torch.tensor([[0.0, 1.0], [0.0, -torch.inf]]))
    student = softmax(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"term 'x'.*token row 1, entry 1, -inf for the target"):
        check_shared(target, student, "term 'x'")
    with pytest.raises(ValueError, match="-inf for the student"):
        check_shared(student, target, "term 'x'")
    check_shared(target, target, "term 'x'")


def test_no_rows_is_fine() -> None:
    assert softmax(torch.zeros(0, 4)).probs.shape == (0, 4)
    assert from_log_probs(torch.zeros(0, 4)).probs.shape == (0, 4)
