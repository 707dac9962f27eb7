"""Sampler and learner at one temperature: with unchanged weights no ratio differs from 1."""

from __future__ import annotations

import pytest

from evaluation.problems import Grade, Problem
from tests.training.small import grade, graded_by, ragged_problems, small_method, small_trainer
from training.update import run_update


def judged(problem: Problem, text: str) -> Grade:
    return grade(float(len(text) % 2))


@pytest.mark.parametrize("key", ["grpo_improved", "sdpo_science"])
@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(0.7, 1.0, 0), (1.3, 0.9, 20)])
def test_unchanged_weights_have_ratios_of_one_at_any_temperature(
    key: str, temperature: float, top_p: float, top_k: int
) -> None:
    """Truncation changes what is drawn and not what is reported of it."""
    changes = {
        "batch.step_prompts": None,
        "batch.group_size": 4,
        "sampling.temperature": temperature,
        "sampling.top_p": top_p,
        "sampling.top_k": top_k,
    }
    method = small_method(key, changes)
    metrics = run_update(
        small_trainer(method, benchmark=graded_by(judged)), 1, ragged_problems(method.batch.prompts)
    ).metrics

    (ratio,) = [value for name, value in metrics.items() if name.startswith("sampler_ratio/")]
    assert ratio == pytest.approx(1, abs=1e-3)
    assert metrics["sampler_logprob_gap"] == pytest.approx(0, abs=1e-4)
    assert all(value == pytest.approx(0) for name, value in metrics.items() if name.startswith("sampler_clip_fract"))
