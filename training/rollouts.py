"""Rollouts: drawn, graded, rewarded, and carried as token ids (text serves grading and records only)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.problems import Grade, Problem
from evaluation.samplers.base import Completion, Sampler, SampleRequest, SamplingParams, seed_of
from training.contexts.rows import ContextRow
from training.credit.rewards import reward_of
from training.losses.advantages import GroupAdvantages, group_advantages
from training.method import GroupAdvantage, Reward


@dataclass(frozen=True, slots=True)
class Rollout:
    """One response to one problem; ``group`` is the place of its problem among those it is learned from with."""

    problem: Problem
    group: int
    prompt_ids: tuple[int, ...]
    completion: Completion
    text: str | None = None
    grade: Grade | None = None
    reward: float | None = None
    """R of the method; None where the grader could not score."""
    update: int = 0
    index: int = 0
    """Its place among all that were drawn for ``update``."""
    critiques: Mapping[str, str] = field(default_factory=dict)
    """View name -> what the policy said of this attempt (self_critique)."""

    @property
    def truncated(self) -> bool:
        return self.completion.finish_reason == "length"

    @property
    def score(self) -> float | None:
        """The grade's score; None where the grader could not score."""
        if self.grade is None or self.grade.verdict == "not_scored":
            return None
        return self.grade.score

    def context_row(self) -> ContextRow:
        return ContextRow(self.problem, self.group, self.text, self.completion.token_ids, self.reward, self.grade)


def rollout_seed(run_seed: int, update: int, index: int, purpose: Literal["rollout", "critique"] = "rollout") -> int:
    """Seed of one request, 0 to 2^63 − 1, from the run's seed, the update and the place among its rollouts."""
    return seed_of(f"{purpose} {run_seed} {update} {index}") >> 1


def sample_rollouts(
    sampler: Sampler,
    problems: Sequence[Problem],
    prompts: Sequence[tuple[int, ...]],
    *,
    group_size: int,
    params: SamplingParams,
    run_seed: int,
    update: int,
    first: int = 0,
    first_group: int = 0,
) -> list[Rollout]:
    """``group_size`` rollouts of each problem, problem by problem, behind the prompts of the drawing view.

    ``first`` and ``first_group`` are the places that the update's earlier draws take up.
    """
    rows = [(group, problems[group]) for group in range(len(problems)) for _ in range(group_size)]
    requests = [
        SampleRequest(prompts[group], rollout_seed(run_seed, update, index))
        for index, (group, _) in enumerate(rows, start=first)
    ]
    completions = sampler.sample(requests, params)
    return [
        Rollout(problem, first_group + group, prompts[group], completion, update=update, index=index)
        for index, ((group, problem), completion) in enumerate(zip(rows, completions, strict=True), start=first)
    ]


def grade_rollouts(
    rollouts: Sequence[Rollout],
    benchmark: Benchmark,
    decode: Callable[[Sequence[int]], str],
    reward: Reward,
    max_new_tokens: int,
) -> list[Rollout]:
    """The rollouts with text, grade and reward. ``decode`` turns response ids (end token included) into text."""
    texts = [decode(rollout.completion.token_ids) for rollout in rollouts]
    grades = grade_many(benchmark, [(rollout.problem, text) for rollout, text in zip(rollouts, texts, strict=True)])
    graded = [replace(rollout, text=t, grade=g) for rollout, t, g in zip(rollouts, texts, grades, strict=True)]
    return [
        rollout
        if rollout.score is None
        else replace(
            rollout, reward=reward_of(reward, rollout.score, len(rollout.completion.token_ids), max_new_tokens)
        )
        for rollout in graded
    ]


def rollout_advantages(rollouts: Sequence[Rollout], advantage: GroupAdvantage) -> GroupAdvantages:
    """Advantage of each rollout within its group; rollouts that are not scored have 0 and are not kept."""
    rewards = [rollout.reward for rollout in rollouts]
    return group_advantages(
        torch.tensor([0.0 if reward is None else reward for reward in rewards], dtype=torch.float64),
        torch.tensor([rollout.group for rollout in rollouts], dtype=torch.int64),
        torch.tensor([reward is not None for reward in rewards], dtype=torch.bool),
        divide_by_std=advantage.divide_by_std,
        epsilon=advantage.epsilon,
    )


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float | None]:
    """reward_mean and pass_rate (of scored rollouts), unscored_rate, completion_tokens_mean, truncated_fraction."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    passed = [rollout.grade.verdict == "pass" for rollout in rollouts if rollout.grade and rollout.reward is not None]
    count = len(rollouts)
    return {
        "reward_mean": sum(rewards) / len(rewards) if rewards else None,
        "pass_rate": sum(passed) / len(passed) if passed else None,
        "unscored_rate": (count - len(rewards)) / count,
        "completion_tokens_mean": sum(len(rollout.completion.token_ids) for rollout in rollouts) / count,
        "truncated_fraction": sum(rollout.truncated for rollout in rollouts) / count,
    }
