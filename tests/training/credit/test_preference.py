"""The slopes of the preference loss against finite differences, and what its parts do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from training.credit.preference import PreferenceLoss, preference_loss
from training.method import Preference

RATIO = torch.tensor([2.0, -1.0, 0.5, 30.0, -3.0], dtype=torch.float64)
LENGTHS = torch.tensor([4, 2, 7, 3, 1])
PASSED = torch.tensor([True, False, True, True, False])
SCORED = torch.tensor([True, True, True, True, False])


def _loss(ratio: torch.Tensor, shift: float | None = None, **spec: Any) -> PreferenceLoss:
    return preference_loss(Preference(**spec), ratio, LENGTHS, PASSED, SCORED, shift)


@pytest.mark.parametrize("length", ["sum", "mean"])
def test_slopes_are_the_derivative_at_a_fixed_shift(length: str) -> None:
    # A shift that moves by 1e-12 of the batch's own is held fixed, as the stop-gradient demands.
    spec = {"length": length, "beta": 0.4, "bound": 3.0, "shift_rate": 1e-12}
    slope = _loss(RATIO, 0.3, **spec).slope
    for row in range(len(RATIO)):
        step = torch.zeros_like(RATIO)
        step[row] = 1e-5
        change = _loss(RATIO + step, 0.3, **spec).loss - _loss(RATIO - step, 0.3, **spec).loss
        # A token's log-probability enters the row's sum once, whatever the length.
        assert float(slope[row]) == pytest.approx(change / 2e-5, abs=1e-8)
    clipped = 0.4 * RATIO / (LENGTHS if length == "mean" else 1) > 3.0
    assert bool(clipped.any()) and bool((slope[clipped] == 0).all())
    assert float(slope[4]) == 0  # not scored


def test_a_likelier_success_and_a_rarer_failure_lower_the_loss() -> None:
    start = _loss(RATIO, 0.0, shift_rate=1e-12).loss

    for row, direction in ((0, 1.0), (1, -1.0)):
        better = RATIO.clone()
        better[row] += direction
        assert _loss(better, 0.0, shift_rate=1e-12).loss < start


def test_the_shift_is_the_mean_of_the_class_means() -> None:
    # β ½: passed 1, ¼, 15 (mean 65/12), failed −½; the unscored row is left out.
    found = _loss(RATIO, beta=0.5)

    assert found.shift == pytest.approx((65 / 12 - 0.5) / 2)
    assert found.margin == pytest.approx(65 / 12 + 0.5)


def test_a_missing_class_takes_the_other_or_the_running_shift() -> None:
    def only(passed: bool, shift: float | None, rate: float) -> PreferenceLoss:
        flags = torch.full((2,), passed)
        return preference_loss(
            Preference(beta=1.0, shift_rate=rate),
            torch.tensor([1.0, 3.0]),
            torch.ones(2, dtype=torch.int64),
            flags,
            torch.ones(2, dtype=torch.bool),
            shift,
        )

    assert only(True, None, 0.5).shift == 2.0
    assert only(False, 7.0, 0.5).shift == 7.0
    assert only(False, 7.0, 1.0).shift == 2.0  # no memory is kept
    expected = (math.log1p(math.exp(1 - 2)) + math.log1p(math.exp(3 - 2))) / 2
    assert only(False, None, 1.0).loss == pytest.approx(expected)


def test_without_a_scored_response_there_is_no_loss() -> None:
    none = preference_loss(Preference(), RATIO, LENGTHS, PASSED, torch.zeros(5, dtype=torch.bool), 0.4)

    assert (none.loss, none.shift, none.margin) == (0.0, 0.4, None) and bool((none.slope == 0).all())


def test_the_running_shift_moves_by_its_rate() -> None:
    first = _loss(RATIO, beta=0.5).shift
    assert first is not None
    assert _loss(RATIO, 1.0, beta=0.5, shift_rate=0.25).shift == pytest.approx(0.75 * 1.0 + 0.25 * first)
