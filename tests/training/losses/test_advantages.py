"""Group-relative advantages by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training.losses.advantages import group_advantages


def advantages(
    rewards: list[float], group: list[int], scored: list[bool] | None = None, *, std: bool = False, epsilon: float = 0.0
) -> tuple[Tensor, Tensor]:
    return group_advantages(
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(group, dtype=torch.long),
        torch.tensor([True] * len(rewards) if scored is None else scored, dtype=torch.bool),
        divide_by_std=std,
        epsilon=epsilon,
    )


def test_mean_is_of_the_group() -> None:
    # Group 7: mean 1/4. Group 3: mean 2. Groups interleave and need no order.
    result, keep = advantages([1, 3, 0, 1, 0, 0], [7, 3, 7, 3, 7, 7])
    assert result.tolist() == [0.75, 1.0, -0.25, -1.0, -0.25, -0.25]
    assert keep.all()


def test_standard_deviation_is_the_sample_one() -> None:
    # (1, 0, 0, 0): deviations (3/4, −1/4, …), squares sum to 3/4, over n − 1 = 3: std = 1/2.
    result, _ = advantages([1, 0, 0, 0], [0] * 4, std=True)
    assert result.tolist() == [1.5, -0.5, -0.5, -0.5]
    result, _ = advantages([1, 0, 0, 0], [0] * 4, std=True, epsilon=0.5)
    assert result.tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("reward", [0.1, 1 / 3, -7.3, 0.0])
@pytest.mark.parametrize("std", [True, False])
def test_equal_rewards_give_exactly_zero(reward: float, std: bool) -> None:
    # 0.1 · 3 / 3 is not 0.1 in floating point; the advantage must not be rounding over epsilon.
    result, keep = advantages([reward] * 7, [0] * 7, std=std)
    assert (result == 0).all() and keep.all()


def test_not_scored_rollouts_count_for_nothing() -> None:
    scored = [True, True, False, True]
    with_unscored, keep = advantages([1, 0, 100, 1], [0] * 4, scored, std=True)
    alone, _ = advantages([1, 0, 1], [0] * 3, std=True)
    assert with_unscored[[0, 1, 3]].tolist() == alone.tolist()
    assert with_unscored[2] == 0 and keep.tolist() == scored
    # mean 2/3; squares (1/9, 4/9, 1/9) over 2 = 1/3
    assert alone[0].item() == pytest.approx((1 / 3) / math.sqrt(1 / 3))


def test_not_scored_reward_may_be_nan() -> None:
    result, _ = advantages([1, math.nan, 0], [0] * 3, [True, False, True])
    assert result.tolist() == [0.5, 0.0, -0.5]


def test_groups_left_with_one_or_no_scored_rollout() -> None:
    result, keep = advantages([1, 5, 3, 4], [0, 0, 1, 1], [True, False, False, False], std=True)
    assert (result == 0).all() and keep.tolist() == [True, False, False, False]


def test_negative_rewards_and_no_rollouts() -> None:
    assert advantages([-1, 1], [0, 0])[0].tolist() == [-1, 1]
    assert advantages([], [])[0].shape == (0,)
