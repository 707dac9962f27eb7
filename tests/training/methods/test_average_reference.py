"""The averaged teacher of SDFT, SDPO and SR-OPSD: θ' ← (1 − rate)·θ' + rate·θ once an update."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.training.small import ragged_problems, small_method, small_trainer
from training.learners.hf import HFLearner
from training.update import run_update


def _weights(learner: HFLearner, average: bool) -> dict[str, Tensor]:
    """fp64 copies of the student's or of the one average's weights, as a checkpoint would hold them."""
    files = learner.state()
    (name,) = set(files) - {"student", "optimiser"} if average else {"student"}
    return {key: value.double() for key, value in files[name].items()}


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_average_follows_its_rate(rate: float) -> None:
    changes = {"views.teacher.weights": {"kind": "ema", "teacher_update_rate": rate}}
    trainer = small_trainer(small_method("sdft", changes))
    learner = trainer.learner
    assert isinstance(learner, HFLearner)
    expected = _weights(learner, average=True)
    for update in (1, 2, 3):
        run_update(trainer, update, ragged_problems(3))
        for name, value in _weights(learner, average=False).items():
            expected[name] = (1 - rate) * expected[name] + rate * value
    for name, value in _weights(learner, average=True).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-7)
