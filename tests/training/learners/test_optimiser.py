"""Learning-rate schedules against torch's, and one AdamW of several phases against its formula in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from tests.training.learners.small import SLOW, STUDENT, SYNCED, backward, build, copied, learn, parameters, same
from training.learners.base import NonFiniteGradientError
from training.learners.optimiser import PhasedAdamW, learning_rate
from training.method import Optimiser

# --- schedules ---------------------------------------------------------------------------------------------------


def test_warm_up_is_linear_and_ends_at_the_rate() -> None:
    optimiser = Optimiser(learning_rate=1.0, warmup_updates=4)

    assert [learning_rate(optimiser, step) for step in range(1, 7)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert learning_rate(Optimiser(learning_rate=0.3), 1) == 0.3


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        # W = 2, T = 6, f = 0.2: p = 1/4, 1/2, 3/4, 1 at steps 3 to 6.
        ("linear", [0.5, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        # 0.2 + 0.8·(1 + cos πp)/2; cos π/4 = 0.70710678
        ("cosine", [0.5, 1.0, 0.88284271, 0.6, 0.31715729, 0.2, 0.2]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_decay_ends_at_the_final_share_and_stays(decay: Any, rates: list[float]) -> None:
    optimiser = Optimiser(learning_rate=1.0, warmup_updates=2, decay=decay, total_updates=6, final_share=0.2)

    assert [learning_rate(optimiser, step) for step in range(1, 8)] == pytest.approx(rates, abs=1e-8)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
@pytest.mark.parametrize("final_share", [0.0, 0.1])
@pytest.mark.parametrize(("warmup", "total"), [(2, 3), (5, 25), (30, 40)])
def test_schedules_are_those_of_torch(decay: Any, final_share: float, warmup: int, total: int) -> None:
    optimiser = Optimiser(
        learning_rate=0.3, warmup_updates=warmup, decay=decay, total_updates=total, final_share=final_share
    )
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    up = LinearLR(sgd, start_factor=1 / warmup, total_iters=warmup - 1)
    down: LRScheduler = CosineAnnealingLR(sgd, T_max=total - warmup, eta_min=0.3 * final_share)
    if decay == "linear":
        down = LinearLR(sgd, start_factor=1.0, end_factor=final_share, total_iters=total - warmup)
    schedule = SequentialLR(sgd, [up, down], milestones=[warmup - 1])

    for step in range(1, total + 1):
        assert learning_rate(optimiser, step) == pytest.approx(sgd.param_groups[0]["lr"], rel=1e-9, abs=1e-12)
        sgd.step()
        schedule.step()


def test_without_warm_up_the_decay_begins_at_once() -> None:
    optimiser = Optimiser(learning_rate=1.0, decay="linear", total_updates=4)

    assert [learning_rate(optimiser, step) for step in range(1, 5)] == [0.75, 0.5, 0.25, 0.0]


# --- phases ------------------------------------------------------------------------------------------------------

PHASES = {
    "student": Optimiser(learning_rate=0.02, betas=(0.9, 0.98), weight_decay=0.1, warmup_updates=2, max_grad_norm=0.5),
    "teacher": Optimiser(
        learning_rate=0.01, betas=(0.9, 0.98), weight_decay=0.1, decay="linear", total_updates=4, max_grad_norm=0.2
    ),
}


def test_phases_share_moments_and_have_their_own_rate_clip_and_count() -> None:
    learner = build(optimisers=PHASES)
    named = dict(learner.student.named_parameters())
    theta = {name: p.detach().double().clone() for name, p in named.items()}
    first = {name: torch.zeros_like(value) for name, value in theta.items()}
    second = {name: torch.zeros_like(value) for name, value in theta.items()}
    order = [("student", 0.01), ("student", 0.02), ("teacher", 0.0075), ("student", 0.02), ("teacher", 0.005)]

    for count, (phase, rate) in enumerate(order, start=1):
        backward(learner)
        raw = {name: p.grad.double().clone() for name, p in named.items() if p.grad is not None}
        reported = learner.step(phase)

        clip = PHASES[phase].max_grad_norm
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in raw.values()))
        assert norm > clip, "the clip must bind for this test to see it"
        assert reported == pytest.approx({"grad_norm": norm, "learning_rate": rate}, rel=1e-5)
        for name in theta:
            gradient = raw[name] * clip / (norm + 1e-6)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.98 * second[name] + 0.02 * gradient**2
            mean, square = first[name] / (1 - 0.9**count), second[name] / (1 - 0.98**count)
            theta[name] = theta[name] * (1 - rate * 0.1) - rate * mean / (square.sqrt() + 1e-8)
    for name, parameter in named.items():
        torch.testing.assert_close(parameter.detach().double(), theta[name], rtol=1e-4, atol=2e-5)
    assert learner._optimiser.steps == {"student": 3, "teacher": 2}


def test_phases_that_cannot_share_an_optimiser_are_refused() -> None:
    phases = {"a": Optimiser(learning_rate=1.0), "b": Optimiser(learning_rate=1.0, weight_decay=0.1)}

    with pytest.raises(ValueError, match="betas, epsilon and weight_decay must agree"):
        build(optimisers=phases)


def test_an_unknown_phase_is_refused_by_name() -> None:
    learner = build(optimisers=PHASES)
    backward(learner)

    with pytest.raises(ValueError, match=r"no phase 'sutdent'; phases: \['student', 'teacher'\]"):
        learner.step("sutdent")


def test_gradient_scale_is_as_if_the_loss_were_scaled() -> None:
    # A power of two, so that both orders round alike.
    scaled, whole = build(), build()
    for update in (1, 2):
        backward(scaled, 8.0)
        backward(whole, 1.0)
        assert scaled.step("main", gradient_scale=0.125) == whole.step("main")
        scaled.advance(update)
        whole.advance(update)

    assert same(scaled.state(), whole.state())


def test_gradient_scale_zero_gives_a_zero_gradient() -> None:
    learner = build()
    before = parameters(learner)
    backward(learner)

    assert learner.step("main", gradient_scale=0.0)["grad_norm"] == 0
    assert all(torch.equal(old, new) for old, new in zip(before, parameters(learner), strict=True))


def test_a_step_leaves_no_gradient_for_the_next() -> None:
    learner = build()
    backward(learner)
    learner.step("main")

    assert all(parameter.grad is None for parameter in learner.student.parameters())


# --- what is not finite ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gradient", "scale"), [("nan", 1.0), ("inf", 1.0), ("1.0", math.inf), ("1.0", math.nan)])
def test_a_gradient_that_is_not_finite_changes_nothing(gradient: str, scale: float) -> None:
    learner, untouched = build(SLOW, SYNCED, optimisers=PHASES), build(SLOW, SYNCED, optimisers=PHASES)
    for one in (learner, untouched):
        learn(one, 1, {"student": 1, "teacher": 1})
    before = copied(learner.state())

    backward(learner)
    norm: Any = learner.student.get_submodule("model.norm")
    norm.weight.grad[0] = float(gradient)
    with pytest.raises(NonFiniteGradientError, match=r"phase 'student', optimiser step 2: .*weights were left"):
        learner.step("student", gradient_scale=scale)

    assert same(learner.state(), before)
    assert all(parameter.grad is None for parameter in learner.student.parameters())
    for one in (learner, untouched):
        learn(one, 2, {"student": 1})
    assert same(learner.state(), untouched.state())


def test_the_parameter_at_fault_is_named() -> None:
    learner = build()
    backward(learner)
    norm: Any = learner.student.get_submodule("model.norm")
    norm.weight.grad[3] = float("nan")

    with pytest.raises(NonFiniteGradientError, match=r"is nan \(not finite in model\.norm\.weight\)"):
        learner.step("main")


# --- state -------------------------------------------------------------------------------------------------------


def test_state_that_does_not_fit_is_refused_by_name() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    optimiser = PhasedAdamW({"w": weight}, PHASES)
    weight.grad = torch.ones(2, 3)
    optimiser.step("student", 1.0)
    good = optimiser.state()
    optimiser.check(good)

    refused = {
        r"of phases \['student'\], here are \['student', 'teacher'\]": {
            name: value for name, value in good.items() if name != "steps/teacher"
        },
        "of another model: it holds 'exp_avg/v'": {**good, "exp_avg/v": torch.zeros(1)},
        r"of w holds only \['step', 'exp_avg'\]": {k: v for k, v in good.items() if k != "exp_avg_sq/w"},
        r"exp_avg/w does not have the shape \[2, 3\]": {**good, "exp_avg/w": torch.zeros(3, 2)},
    }
    for message, tensors in refused.items():
        with pytest.raises(ValueError, match=message):
            optimiser.load(tensors)
    assert all(torch.equal(value, good[name]) for name, value in optimiser.state().items())


def test_only_the_student_is_optimised() -> None:
    learner = build(SLOW)
    start = parameters(learner, SLOW)
    backward(learner)
    learner.step("main")

    assert all(torch.equal(old, new) for old, new in zip(start, parameters(learner, SLOW), strict=True))
    assert not torch.equal(start[0], parameters(learner, STUDENT)[0])
