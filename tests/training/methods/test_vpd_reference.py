"""VPD's two steps: whole updates against the references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.methods.comparison import EXACT, Loss, Teller, Weights, agree, told
from tests.training.methods.reference import vpd
from tests.training.methods.runs import TEMPERATURE, draw, paper, prepare
from training.method import Method
from training.state import TrainingState
from training.update import run_update

TERM = "phases.student.terms.distill"
PREFERENCE = "phases.teacher.terms.preference"

SCORES = (1.0, 0.0, 1.0, 0.0, 0.0, 1.0)


def _grouped(changes: dict[str, Any] | None = None) -> Method:
    return paper("vpd", changes, prompts=2, group_size=3)


def _m_step(k: int) -> Loss:
    return lambda tell, now, begun: vpd.m_step(tell.rollouts(now, begun), k=k, temperature=TEMPERATURE)


def _e_step(**settings: Any) -> Loss:
    def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
        return vpd.e_step(tell.rollouts(now, begun), temperature=TEMPERATURE, **settings).loss

    return loss


@pytest.mark.parametrize("k", [5, 100])
def test_m_step_alone(k: int) -> None:
    method = _grouped({f"{TERM}.support.k": k})
    agree(method, draw(method, SCORES), _m_step(k))


def test_both_steps_of_a_fifth_update() -> None:
    method = _grouped({f"{TERM}.support.k": 5})
    finished = agree(method, draw(method, SCORES), _m_step(5), _e_step(bound=10.0), update=5)
    assert [phase for phase, _ in finished.learner.steps] == ["student", "teacher"]


@pytest.mark.parametrize(
    "changes",
    [
        {"bound": 0.15},
        {"bound": None, "length": "mean", "beta": 2.0},
        {"bound": None, "shift_rate": 0.1},
    ],
)
def test_settings_of_the_e_step(changes: dict[str, Any]) -> None:
    method = _grouped({f"{TERM}.support.k": 5, **{f"{PREFERENCE}.{name}": value for name, value in changes.items()}})
    agree(method, draw(method, SCORES), _m_step(5), _e_step(**changes), update=5)


def test_e_step_with_a_fixed_prior() -> None:
    method = _grouped({f"{TERM}.support.k": 5, "views.prior.weights": "frozen"})
    agree(method, draw(method, SCORES), _m_step(5), _e_step(bound=10.0), update=5)


def test_e_step_of_one_class() -> None:
    """Two successes in each group and nothing else that has a context."""
    method = _grouped({f"{TERM}.support.k": 5})
    agree(method, draw(method, (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)), _m_step(5), _e_step(bound=10.0), update=5)


def test_e_step_on_all_rollouts_since_the_last() -> None:
    """Two M-steps on six rollouts each, then one E-step on the twelve."""
    method = _grouped({f"{TERM}.support.k": 5, "phases.teacher.every": 2})
    batch = draw(method, (*SCORES, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0), rounds=2)
    prepared, state = prepare(method, batch), TrainingState.initial(method)
    for update in (1, 2):
        run_update(prepared.trainer, update, batch.problems, state)
    assert [phase for phase, _ in prepared.learner.steps] == ["student", "student", "teacher"]
    batch.problems = batch.problems * 2

    def m_step(groups: list[int]) -> Loss:
        return lambda tell, now, begun: vpd.m_step(tell.rollouts(now, begun, groups), k=5, temperature=TEMPERATURE)

    _, gradients = told(prepared, [[m_step([0, 1])], [m_step([2, 3])], [_e_step(bound=10.0)]])
    for (_, found), expected in zip(prepared.learner.steps, gradients, strict=True):
        EXACT.check(found, expected)
    assert state.buffers == {"teacher": []}
