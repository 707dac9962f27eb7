"""The clipped surrogate, by hand in each of its regions, and cross-entropy."""

from __future__ import annotations

import math

import pytest
import torch

from training.losses.bounds import LOG_RATIO_BOUND
from training.losses.cross_entropy import cross_entropy
from training.losses.policy_gradient import clipped_surrogate

# ratio, advantage -> loss, slope, clipped; clip_low .2 and clip_high .28.
REGIONS = [
    (1.1, 2.0, -2.2, -2.2, 0),  # inside: −ρA
    (1.1, -2.0, 2.2, 2.2, 0),
    (1.5, 2.0, -2.56, 0.0, 1),  # above, good: −1.28 A, no gradient
    (1.5, -2.0, 3.0, 3.0, 0),  # above, bad: the clip may not help, −ρA
    (0.5, 2.0, -1.0, -1.0, 0),  # below, good: −ρA
    (0.5, -2.0, 1.6, 0.0, 1),  # below, bad: −0.8 A, no gradient
    (1.25, 2.0, -2.5, -2.5, 0),  # between 1 + clip_low and 1 + clip_high: not clipped
    (0.79, -1.0, 0.8, 0.0, 1),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "slope", "clipped"), REGIONS)
def test_regions(ratio: float, advantage: float, loss: float, slope: float, clipped: int) -> None:
    old = torch.tensor([-1.3], dtype=torch.float64)
    result = clipped_surrogate(old + math.log(ratio), old, torch.tensor([advantage]), 0.2, 0.28)
    assert result.loss.item() == pytest.approx(loss, rel=1e-9)
    assert result.slope.item() == pytest.approx(slope, rel=1e-9)
    assert result.ratio.item() == pytest.approx(ratio, rel=1e-9)
    assert (result.clipped.item(), result.bounded.item()) == (clipped, 0)


# ratio, advantage -> loss, slope, clipped, dual clipped; clip_low .2, clip_high .28, dual_clip 3.
DUAL_REGIONS = [
    (1.1, -2.0, 2.2, 2.2, 0, 0),  # bad, inside: −ρA
    (1.5, -2.0, 3.0, 3.0, 0, 0),  # bad, above 1.28 and below 3: the PPO clip does not help, −ρA
    (2.9, -2.0, 5.8, 5.8, 0, 0),
    (3.5, -2.0, 6.0, 0.0, 0, 1),  # bad, above 3: −3 A, no gradient
    (1000.0, -1.0, 3.0, 0.0, 0, 1),
    (0.5, -2.0, 1.6, 0.0, 1, 0),  # bad, below: the PPO clip alone
    (3.5, 2.0, -2.56, 0.0, 1, 0),  # good tokens never meet the dual clip
    (0.5, 2.0, -1.0, -1.0, 0, 0),
    (5.0, 0.0, 0.0, 0.0, 0, 0),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "slope", "clipped", "dual"), DUAL_REGIONS)
def test_dual_clip_regions(ratio: float, advantage: float, loss: float, slope: float, clipped: int, dual: int) -> None:
    old = torch.tensor([-1.3], dtype=torch.float64)
    result = clipped_surrogate(old + math.log(ratio), old, torch.tensor([advantage]), 0.2, 0.28, 3.0)
    assert result.loss.item() == pytest.approx(loss, rel=1e-9)
    assert result.slope.item() == pytest.approx(slope, rel=1e-9)
    assert (result.clipped.item(), result.dual_clipped.item()) == (clipped, dual)


def test_dual_clip_caps_a_bounded_ratio() -> None:
    old = torch.tensor([-100.0])
    result = clipped_surrogate(torch.tensor([-0.1]), old, torch.tensor([-2.0]), 0.2, 0.2, 10.0)
    assert (result.loss.item(), result.slope.item(), result.bounded.item()) == (20.0, 0.0, 1.0)


def test_on_policy_the_ratio_is_one_and_the_slope_is_minus_the_advantage() -> None:
    advantage = torch.tensor([0.5, -3.0, 0.0])
    result = clipped_surrogate(torch.tensor([-0.1, -7.0, -2.0]), None, advantage, 0.2, 0.2)
    assert (result.ratio == 1).all() and (result.clipped == 0).all()
    assert torch.equal(result.loss, -advantage) and torch.equal(result.slope, -advantage)


@pytest.mark.parametrize("log_ratio", [100.0, -100.0, 1000.0])
def test_exponent_is_bounded_and_counted(log_ratio: float) -> None:
    old = torch.tensor([-1.0, -1.0])
    result = clipped_surrogate(old + torch.tensor([log_ratio, 0.1]), old, torch.tensor([-1.0, -1.0]), 0.2, 0.2)
    assert torch.isfinite(result.loss).all() and torch.isfinite(result.slope).all()
    assert result.bounded.tolist() == [1, 0]
    assert result.slope[0] == 0
    assert result.ratio[0].item() == pytest.approx(math.exp(math.copysign(LOG_RATIO_BOUND, log_ratio)), rel=1e-5)


def test_cross_entropy_is_minus_the_log_probability() -> None:
    result = cross_entropy(torch.tensor([-0.5, -3.0]))
    assert result.loss.tolist() == [0.5, 3.0] and result.slope.tolist() == [-1.0, -1.0]
