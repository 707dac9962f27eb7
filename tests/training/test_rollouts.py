from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.problems import Grade, Problem
from evaluation.samplers.base import Completion, SamplingParams
from tests.training.small import FixedSampler, addition_problems, grade, graded_by, small_renderer
from training.base_models.tokenizer import END, VOCABULARY
from training.method import GroupAdvantage, Reward
from training.rollouts import (
    Rollout,
    grade_rollouts,
    rollout_advantages,
    rollout_metrics,
    rollout_seed,
    sample_rollouts,
)

STOP = VOCABULARY[END]
PARAMS = SamplingParams(max_new_tokens=4)


def _rollouts(scores: list[float | None], groups: list[int]) -> list[Rollout]:
    problems = addition_problems(max(groups) + 1)
    return [
        Rollout(problems[group], group, (1, 2), Completion((7, STOP), (-0.5, -0.1), "stop"), "x", grade(score), score)
        for score, group in zip(scores, groups, strict=True)
    ]


def test_rollout_seeds_never_change() -> None:
    # blake2b-64 of "rollout 0 1 0" and "rollout 3 17 5", halved: a change would silently end every replay.
    assert rollout_seed(0, 1, 0) == 820974699192396023
    assert rollout_seed(3, 17, 5) == 7550707896731739896


def test_rollout_seeds_differ_by_run_update_and_place() -> None:
    seeds = {rollout_seed(run, update, index) for run in range(5) for update in range(20) for index in range(20)}

    assert len(seeds) == 5 * 20 * 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_groups_are_drawn_problem_by_problem_with_seeds_of_their_own() -> None:
    problems = addition_problems(2)
    prompts = [(1,), (2, 3)]
    sampler = FixedSampler([(10, STOP), (11, STOP), (12, STOP), (13, 14, 15, 16)])

    rollouts = sample_rollouts(sampler, problems, prompts, group_size=2, params=PARAMS, run_seed=4, update=9)

    assert [request.prompt_ids for request in sampler.requests] == [(1,), (1,), (2, 3), (2, 3)]
    assert [request.seed for request in sampler.requests] == [rollout_seed(4, 9, index) for index in range(4)]
    assert [(r.group, r.problem.id, r.completion.token_ids[0]) for r in rollouts] == [
        (0, problems[0].id, 10),
        (0, problems[0].id, 11),
        (1, problems[1].id, 12),
        (1, problems[1].id, 13),
    ]
    assert [rollout.truncated for rollout in rollouts] == [False, False, False, True]


def test_grading_sees_the_text_and_a_failing_grader_makes_an_answer_not_scored() -> None:
    def judge(problem: Problem, text: str) -> Grade:
        if text == "7":
            raise RuntimeError("the checker broke")
        return grade(1.0 if text == "8" else 0.0)

    renderer = small_renderer()
    responses = [(VOCABULARY[digit], STOP) for digit in "789"]
    problems = addition_problems(3)
    drawn = sample_rollouts(
        FixedSampler(responses), problems, [(1,)] * 3, group_size=1, params=PARAMS, run_seed=0, update=1
    )

    graded = grade_rollouts(drawn, graded_by(judge), renderer.decode, Reward(), PARAMS.max_new_tokens)

    assert [rollout.text for rollout in graded] == ["7", "8", "9"]
    assert [rollout.reward for rollout in graded] == [None, 1.0, 0.0]
    assert graded[0].grade is not None and "the checker broke" in (graded[0].grade.error or "")
    assert [rollout.completion for rollout in graded] == [rollout.completion for rollout in drawn]


def test_advantages_leave_out_what_was_not_scored() -> None:
    # Group 0: rewards 1, 0 and one not scored: mean ½, sample deviation √½, so ±½ / (√½ + ε).
    rollouts = _rollouts([1.0, 0.0, None, 1.0, 1.0], [0, 0, 0, 1, 1])

    computed = rollout_advantages(rollouts, GroupAdvantage(epsilon=1e-4))

    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert computed.advantage.tolist() == pytest.approx([expected, -expected, 0, 0, 0], abs=1e-6)
    assert computed.keep.tolist() == [True, True, False, True, True]


def test_a_score_beside_not_scored_is_no_reward() -> None:
    careless = Grade(verdict="not_scored", score=0.0, grader="test", version="1", error="time-out")

    assert replace(_rollouts([1.0], [0])[0], grade=careless).score is None


def test_metrics_average_scored_rollouts_only() -> None:
    metrics = rollout_metrics(_rollouts([1.0, 0.0, None, 0.0], [0, 0, 1, 1]))

    assert metrics == {
        "reward_mean": pytest.approx(1 / 3),
        "pass_rate": pytest.approx(1 / 3),
        "unscored_rate": 0.25,
        "completion_tokens_mean": 2.0,
        "truncated_fraction": 0.0,
    }


def test_metrics_of_nothing_scored_have_no_reward() -> None:
    metrics = rollout_metrics(_rollouts([None, None], [0, 0]))

    assert metrics["reward_mean"] is None and metrics["unscored_rate"] == 1.0
