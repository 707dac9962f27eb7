"""From grades to rewards, and which rollouts a gated term learns from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from training.losses.advantages import group_advantages
from training.method import Gate, Reward
from training.method.weightings import SUCCESS


def overlong_penalty(reward: Reward, tokens: int, max_new_tokens: int) -> float:
    """0 up to max_new_tokens − cache_tokens, then linear up to ``penalty`` at max_new_tokens (DAPO, equation 13)."""
    if reward.overlong is None:
        return 0.0
    beyond = tokens - (max_new_tokens - reward.overlong.cache_tokens)
    return reward.overlong.penalty * min(1.0, max(0.0, beyond / reward.overlong.cache_tokens))


def reward_of(reward: Reward, score: float, tokens: int, max_new_tokens: int) -> float:
    """R = on_fail + (on_pass − on_fail)·score − penalty."""
    plain = reward.on_fail + (reward.on_pass - reward.on_fail) * score
    return plain - overlong_penalty(reward, tokens, max_new_tokens)


def gated(gate: Gate, rewards: Sequence[float | None], groups: Sequence[int]) -> list[bool | None]:
    """Whether each rollout passes the gate; None (no part in the term) where it is not scored and the gate asks.

    positive_advantage: R_i above the mean of its group's scored rewards; equal rewards are above nothing.
    """
    if gate == "all":
        return [True] * len(rewards)
    if gate == "positive_advantage":
        above = (
            group_advantages(
                torch.tensor([0.0 if reward is None else reward for reward in rewards], dtype=torch.float64),
                torch.tensor(list(groups), dtype=torch.int64),
                torch.tensor([reward is not None for reward in rewards], dtype=torch.bool),
                divide_by_std=False,
                epsilon=0.0,
            ).advantage
            > 0
        ).tolist()
        return [None if reward is None else bool(up) for reward, up in zip(rewards, above, strict=True)]
    wanted = gate == "passed"
    return [None if reward is None else (reward >= SUCCESS) == wanted for reward in rewards]


def mixed_groups(rewards: Sequence[float | None], groups: Sequence[int]) -> set[int]:
    """The groups with a success and a failure among their scored rollouts."""
    seen: dict[int, set[bool]] = {}
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            seen.setdefault(group, set()).add(reward >= SUCCESS)
    return {group for group, outcomes in seen.items() if len(outcomes) == 2}


def uneven_groups(scores: Sequence[float | None], groups: Sequence[int]) -> set[int]:
    """The groups whose scored rollouts do not all have one score (what DAPO keeps)."""
    seen: dict[int, set[float]] = {}
    for score, group in zip(scores, groups, strict=True):
        if score is not None:
            seen.setdefault(group, set()).add(score)
    return {group for group, values in seen.items() if len(values) > 1}
