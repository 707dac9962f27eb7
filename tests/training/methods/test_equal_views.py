"""A teacher without context, before the first step, on a real model: the same forward, so no divergence at all."""

from __future__ import annotations

import pytest

from tests.training.small import ragged_problems, small_method, small_trainer
from training.update import run_update


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("weights", ["frozen", "ema", "student", "synced", "phase_start"])
@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", {"kind": "jsd", "beta": 0.3}])
def test_divergence_is_exactly_zero(divergence: object, weights: str, temperature: float) -> None:
    changes = {
        "views.teacher.context": "none",
        "views.teacher.weights": weights,
        "phases.student.terms.distill.divergence": divergence,
        "sampling.temperature": temperature,
    }
    result = run_update(small_trainer(small_method("sdft", changes)), 1, ragged_problems(3))

    values = [value for name, value in result.metrics.items() if name.startswith("divergence/distill/")]
    assert values and all(value == 0 for value in values)
    assert result.metrics["grad_norm"] == pytest.approx(0, abs=1e-5)
