"""Group-relative advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class GroupAdvantages(NamedTuple):
    """One advantage a rollout, and which rollouts may give a gradient (the scored ones)."""

    advantage: Float[Tensor, " R"]
    keep: Bool[Tensor, " R"]


def group_advantages(
    rewards: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    scored: Bool[Tensor, " R"],
    *,
    divide_by_std: bool,
    epsilon: float,
) -> GroupAdvantages:
    """A_i = R_i − mean_G(R), over (std_G(R) + ``epsilon``) when ``divide_by_std`` (GRPO; without: Dr.GRPO).

    ``group`` holds any integer label a rollout. The standard deviation is the sample one (n − 1), as in the GRPO
    implementations. Rollouts that are not ``scored`` enter no mean and no deviation, get advantage 0 and are not
    kept. A group whose scored rewards are all equal (one alone included) has advantage exactly 0.
    """
    reward = torch.where(scored, rewards, 0.0).to(torch.float64)
    _, index = torch.unique(group, return_inverse=True)
    groups = int(index.max()) + 1 if len(index) else 0
    count = reward.new_zeros(groups).index_add_(0, index, scored.to(torch.float64))
    mean = torch.zeros_like(count).index_add_(0, index, reward) / count.clamp(min=1)
    centred = torch.where(scored, reward - mean[index], 0.0)
    low = torch.full_like(count, torch.inf).scatter_reduce_(0, index[scored], reward[scored], "amin")
    high = torch.full_like(count, -torch.inf).scatter_reduce_(0, index[scored], reward[scored], "amax")
    centred = torch.where((low == high)[index], 0.0, centred)
    if divide_by_std:
        variance = torch.zeros_like(count).index_add_(0, index, centred.square()) / (count - 1).clamp(min=1)
        centred = torch.where(centred == 0, 0.0, centred / (variance.sqrt() + epsilon)[index])
    return GroupAdvantages(centred.to(rewards.dtype), scored)
