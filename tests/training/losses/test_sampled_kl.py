"""Estimators of a KL from the sampled token: by hand, by enumeration of a 3-token policy, and at the bound."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from training.losses.bounds import LOG_RATIO_BOUND
from training.losses.sampled_kl import AT_EQUALITY, EXPONENTIAL, Estimator, sampled_kl
from training.method import Distill, ForwardKL, Importance, ReverseKL, SampledKL
from training.objective import Term, TokenBatch, objective

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
EVERY = pytest.mark.parametrize("estimator", ESTIMATORS)

# w = π/p = 2: log w = ln 2. Loss, and its derivative by log w.
BY_HAND: dict[Estimator, tuple[float, float]] = {
    "k1": (math.log(2), 1.0),
    "k2": (math.log(2) ** 2 / 2, math.log(2)),
    "k3": (0.5 - 1 + math.log(2), 0.5),
    "urkl": (math.log(2) ** 2 / 2, math.log(2)),
    "ufkl": (0.5 + math.log(2), 0.5),
    "rkl": ((math.log(2) + 1) ** 2 / 2, math.log(2) + 1),
    "fkl": (0.5, -0.5),
}


@EVERY
def test_by_hand(estimator: Estimator) -> None:
    # π = 0.5, p = 0.25.
    log_prob, against = (torch.tensor([p], dtype=torch.float64).log() for p in (0.5, 0.25))
    result = sampled_kl(log_prob, against, estimator)
    assert (result.loss.item(), result.slope.item()) == pytest.approx(BY_HAND[estimator], rel=1e-12)
    assert not result.bounded.any()
    equal = sampled_kl(log_prob, log_prob, estimator)
    assert equal.loss.item() == AT_EQUALITY[estimator]
    assert equal.slope.item() == {"k1": 1, "rkl": 1, "fkl": -1}.get(estimator, 0)


@EVERY
def test_gradient_is_the_slope_of_the_value(estimator: Estimator) -> None:
    against = torch.tensor([-3.0, -0.1, -2.0], dtype=torch.float64)
    log_prob = torch.tensor([-1.0, -4.0, -2.2], dtype=torch.float64)
    ahead, behind = (sampled_kl(log_prob + sign * 1e-6, against, estimator).loss for sign in (1, -1))
    torch.testing.assert_close(
        sampled_kl(log_prob, against, estimator).slope, (ahead - behind) / 2e-6, rtol=1e-7, atol=1e-7
    )


@EVERY
@pytest.mark.parametrize("log_ratio", [100.0, -100.0, 2e4, -2e4])
def test_an_exponent_beyond_the_bound_is_finite_and_counted(estimator: Estimator, log_ratio: float) -> None:
    against = torch.tensor([-1.0, -1.0])
    result = sampled_kl(against + torch.tensor([log_ratio, 0.1]), against, estimator)
    assert torch.isfinite(result.loss).all() and torch.isfinite(result.slope).all()
    assert result.bounded.tolist() == ([True, False] if estimator in EXPONENTIAL else [False, False])
    if estimator not in EXPONENTIAL:
        return
    if log_ratio < 0:
        # 1/w would overflow: the loss is held at the bound and gives no gradient.
        held = math.exp(LOG_RATIO_BOUND)
        assert result.loss[0].item() == pytest.approx(held, rel=1e-5) and result.slope[0] == 0
    else:
        # 1/w is as good as 0: the linear part keeps pulling the policy back.
        assert result.slope[0] == (0.0 if estimator == "fkl" else 1.0)


def test_k3_keeps_its_digits_near_equality() -> None:
    log_ratio = torch.tensor([1e-3, -1e-3, 1e-2])
    value = sampled_kl(log_ratio, torch.zeros(3), "k3").loss.double()
    exact = torch.expm1(-log_ratio.double()) + log_ratio.double()
    torch.testing.assert_close(value, exact, rtol=0, atol=1e-9)


# --- expected gradients over all outcomes of a 3-token policy -----------------------------------------------------

LOGITS = torch.tensor([[0.3, -1.0, 0.8]], dtype=torch.float64)
TARGET = torch.tensor([[1.0, 0.2, -0.5]], dtype=torch.float64)
ZERO = torch.zeros(1, dtype=torch.long)


def gradient(term: Term, label: int) -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    heads: dict[str, nn.Module] = {"student": nn.Identity(), "teacher": nn.Identity()}
    batch = TokenBatch(torch.tensor([label]), ZERO, ZERO, {})
    result = objective({"t": term}, batch, {"student": logits, "teacher": TARGET}, heads, chunk_tokens=1)
    return torch.autograd.grad(result.loss, logits)[0]


def expected_gradient(term: Term) -> Tensor:
    """E over y ∼ π of the gradient on y."""
    probs = torch.softmax(LOGITS, -1)[0]
    return torch.stack([probs[label] * gradient(term, label) for label in range(3)]).sum(0)


def estimate(estimator: Estimator, importance: Importance | None = None) -> SampledKL:
    return SampledKL(against="teacher", estimator=estimator, temperature=1.0, importance=importance)


def test_k1_has_no_expected_gradient() -> None:
    torch.testing.assert_close(expected_gradient(estimate("k1")), torch.zeros(1, 3).double(), atol=1e-15, rtol=0)


def test_k2_and_urkl_have_that_of_the_reverse_kl() -> None:
    exact = gradient(Distill(divergence=ReverseKL()), 0)
    for estimator in ("k2", "urkl", "rkl"):
        torch.testing.assert_close(expected_gradient(estimate(estimator)), exact)


def test_k3_and_fkl_have_that_of_the_forward_kl() -> None:
    """E_π[(1 − 1/w)∇log π] = −Σ p ∇log π: the gradient of KL(p‖π), not of the KL(π‖p) whose value k3 estimates."""
    exact = gradient(Distill(divergence=ForwardKL()), 0)
    for estimator in ("k3", "ufkl", "fkl"):
        torch.testing.assert_close(expected_gradient(estimate(estimator)), exact)
    wanted = gradient(Distill(divergence=ReverseKL()), 0)
    assert (expected_gradient(estimate("k3")) - wanted).norm() > 0.1 * wanted.norm()


def test_k3_estimates_the_value_of_the_reverse_kl() -> None:
    probs, target = torch.softmax(LOGITS, -1)[0], torch.softmax(TARGET, -1)[0]
    exact = (probs * (probs / target).log()).sum()
    for estimator in ("k1", "k3"):
        torch.testing.assert_close((probs * sampled_kl(probs.log(), target.log(), estimator).loss).sum(), exact)


def test_k3_under_an_importance_ratio_with_gradient_is_the_reverse_kl() -> None:
    """∂[ρ(e^{−ℓ} − 1 + ℓ)] = ρ·ℓ·∂log π (Skill-SD), on-policy and off; its expectation is that of the reverse KL."""
    term = estimate("k3", importance=Importance(clip=None, gradient=True))
    probs, target = torch.softmax(LOGITS, -1)[0], torch.softmax(TARGET, -1)[0]
    for label in range(3):
        log_ratio = (probs[label] / target[label]).log()
        onehot = torch.nn.functional.one_hot(torch.tensor(label), 3)
        torch.testing.assert_close(gradient(term, label), log_ratio * (onehot - probs)[None])
    torch.testing.assert_close(expected_gradient(term), gradient(Distill(divergence=ReverseKL()), 0))


@pytest.mark.parametrize("estimator", ["k2", "k3", "urkl", "ufkl"])
def test_no_gradient_where_the_policies_agree(estimator: Estimator) -> None:
    logits = LOGITS.clone().requires_grad_()
    heads: dict[str, nn.Module] = {"student": nn.Identity(), "reference": nn.Identity()}
    batch = TokenBatch(torch.tensor([1]), ZERO, ZERO, {})
    term = SampledKL(estimator=estimator, temperature=0.7)
    result = objective({"t": term}, batch, {"student": logits, "reference": LOGITS}, heads, chunk_tokens=1)
    assert result.metrics[f"divergence/t/kl_{estimator}"] == (0.0, 1.0)
    assert (torch.autograd.grad(result.loss, logits)[0] == 0).all()
