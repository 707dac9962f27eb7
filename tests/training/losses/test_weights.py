"""USD's weights and difficulties, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tests.training.losses.ragged import ragged
from training.losses.distributions import Distribution, from_log_probs, softmax
from training.losses.ratios import bounded_ratio, importance_weight
from training.losses.supports import restrict
from training.losses.weights import difficulty, usd_weight
from training.method import Distill, FullSupport, TopKSupport, UsdHard, UsdSoft


def events(*probs: float) -> Distribution:
    return from_log_probs(torch.tensor([probs], dtype=torch.float64).log())


def test_difficulty_by_hand() -> None:
    # The target's likeliest id is 0: log(.6/.2) = log 3; where the student is surer than the target it is 0.
    pair = restrict(FullSupport(), events(0.6, 0.3, 0.1), events(0.2, 0.1, 0.7))
    assert difficulty(pair, "x").item() == pytest.approx(math.log(3), rel=1e-12)
    sure = restrict(FullSupport(), events(0.6, 0.3, 0.1), events(0.8, 0.1, 0.1))
    assert difficulty(sure, "x").item() == 0


def test_difficulty_looks_at_the_whole_vocabulary() -> None:
    """Also where the student's top ids do not hold the target's likeliest one."""
    target, student = events(0.6, 0.3, 0.1), events(0.1, 0.2, 0.7)
    pair = restrict(TopKSupport(k=2), target, student)
    assert pair.ids is not None and 0 not in pair.ids.tolist()[0]
    assert difficulty(pair, "x").item() == pytest.approx(math.log(6), rel=1e-12)


def test_a_student_that_cannot_follow_is_an_error() -> None:
    pair = restrict(TopKSupport(k=1), softmax(torch.tensor([[3.0, 0.0]])), softmax(torch.tensor([[-torch.inf, 0.0]])))
    with pytest.raises(ValueError, match="term 'x': the student gives probability 0 to the target's likeliest id"):
        difficulty(pair, "term 'x'")


def test_weights_by_hand() -> None:
    # gain = g − 0.5·d = (0.3, −0.1, 0)
    g, d = torch.tensor([0.5, 0.1, 0.2]), torch.tensor([0.4, 0.4, 0.4])
    soft = usd_weight(UsdSoft(price=0.5, sharpness=0.1), g, d)
    torch.testing.assert_close(soft, torch.tensor([1 / (1 + math.exp(-3)), 1 / (1 + math.e), 0.5]))
    assert usd_weight(UsdHard(price=0.5), g, d).tolist() == [1, 0, 0]
    # Without a price every token of a positive divergence counts at least half.
    assert (usd_weight(UsdSoft(), g, d) >= 0.5).all()
    assert usd_weight(UsdHard(), g, d).tolist() == [1, 1, 1]


@pytest.mark.parametrize("gain", [1e8, -1e8])
def test_weights_saturate_without_overflow(gain: float) -> None:
    zero = torch.zeros(1)
    assert usd_weight(UsdSoft(), torch.tensor([gain]), zero).item() == (gain > 0)
    assert usd_weight(UsdSoft(price=1.0), zero, torch.tensor([-gain])).item() == (gain > 0)


def test_a_flat_sigmoid_is_a_uniform_weighting() -> None:
    """λ = 0 and τ → ∞: loss and gradient of the unweighted term (USD's limit to OPSD)."""
    data = ragged(seed=3)
    flat = {"masked": Distill(weighting=UsdSoft(sharpness=1e12), entry_clip=0.05)}
    plain = {"masked": Distill(entry_clip=0.05)}
    first, second = data.run(flat), data.run(plain)
    assert first.loss.item() == pytest.approx(second.loss.item(), rel=1e-9)
    first.loss.backward()
    assert data.student.grad is not None
    by_flat = data.student.grad.clone()
    data.student.grad = None
    second.loss.backward()
    torch.testing.assert_close(by_flat, data.student.grad, rtol=1e-8, atol=1e-12)


def test_importance_by_hand() -> None:
    old = torch.tensor([-2.0, -2.0, -2.0], dtype=torch.float64)
    log_prob = old + torch.tensor([1.5, 3.0, 0.5], dtype=torch.float64).log()
    result = importance_weight(log_prob, old, 2.0)
    torch.testing.assert_close(result.weight, torch.tensor([1.5, 2.0, 0.5], dtype=torch.float64))
    torch.testing.assert_close(result.ratio, torch.tensor([1.5, 3.0, 0.5], dtype=torch.float64))
    assert result.clipped.tolist() == [False, True, False] and result.moves().tolist() == [True, False, True]
    on_policy = importance_weight(log_prob, None, 2.0)
    assert (on_policy.weight == 1).all() and on_policy.moves().all()


@pytest.mark.parametrize("log_ratio", [100.0, -100.0, 2e4])
def test_a_wild_importance_ratio_is_bounded_and_counted(log_ratio: float) -> None:
    result = bounded_ratio(torch.tensor([log_ratio, 0.1]))
    assert torch.isfinite(result.ratio).all() and result.bounded.tolist() == [True, False]
    free = importance_weight(torch.tensor([log_ratio]), torch.zeros(1), None)
    assert torch.isfinite(free.weight).all() and free.bounded.all() and not free.moves().any()
