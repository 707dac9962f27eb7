"""Mixed targets against numbers by hand and the identities of SR-OPSD."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.training.losses.test_divergences import random_pair
from training.losses.distributions import Distribution, from_log_probs, softmax
from training.losses.divergences import divergence, forward_kl
from training.losses.mixtures import geometric, mixed_pair
from training.method import Distill, FullSupport, GeometricMix, Renyi, ReverseKL, TopKSupport, TowardStudent


def events(*probs: float) -> Distribution:
    return from_log_probs(torch.tensor([probs], dtype=torch.float64).log())


def pair_gradient(term: Distill, views: dict[str, Distribution], student: Distribution) -> Tensor:
    pair = mixed_pair(term, views, student, None, "term")
    return pair.by_logits(divergence(term.divergence, pair.target, pair.student).slope)


def test_by_hand() -> None:
    # √(½·9/10), √(½·1/10) normalised is (3, 1)/4; at share 1/4 of P: P^¼R^¾ = (9/10)^¾, (1/10)^¾ over their sum,
    # so the odds are 9^¾.
    p, r = events(0.5, 0.5), events(0.9, 0.1)
    torch.testing.assert_close(geometric(p, r, 0.5).probs, events(0.75, 0.25).probs)
    odds = 9**0.75
    torch.testing.assert_close(geometric(p, r, 0.25).probs, events(odds / (1 + odds), 1 / (1 + odds)).probs)
    assert geometric(p, r, 1.0) is p and geometric(p, r, 0.0) is r


def test_support_first_and_mix_first_by_hand() -> None:
    target, reference = events(0.5, 0.3, 0.1, 0.1), events(0.1, 0.1, 0.4, 0.4)
    student = events(0.4, 0.3, 0.2, 0.1)
    views = {"teacher": target, "reference": reference}

    def mixed(order: str, rest: str) -> Tensor:
        mix = GeometricMix.model_validate({"order": order, "share": 0.5})
        support = TopKSupport.model_validate({"k": 2, "rest": rest})
        return mixed_pair(Distill(mix=mix, support=support), views, student, None, "term").target.probs

    def normalised(*weights: float) -> Tensor:
        return torch.tensor([weights], dtype=torch.float64) / sum(weights)

    # Tail first: (.5, .3, .2) with (.1, .1, .8). Mixture first: all four ids, then ids 2 and 3 are one.
    first = normalised(math.sqrt(0.05), math.sqrt(0.03), math.sqrt(0.16))
    late = normalised(math.sqrt(0.05), math.sqrt(0.03), 2 * math.sqrt(0.04))
    torch.testing.assert_close(mixed("support_first", "tail"), first)
    torch.testing.assert_close(mixed("mix_first", "tail"), late)
    for order in ("support_first", "mix_first"):
        torch.testing.assert_close(mixed(order, "renormalise"), normalised(math.sqrt(0.05), math.sqrt(0.03)))


def test_the_target_support_is_taken_before_a_late_mixture_and_after_an_early_one() -> None:
    target, reference = events(0.5, 0.4, 0.1), events(0.02, 0.02, 0.96)
    views, student = {"teacher": target, "reference": reference}, events(0.3, 0.3, 0.4)
    for order, ids in (("support_first", [0, 1]), ("mix_first", [2, 0])):
        mix = GeometricMix.model_validate({"order": order, "share": 0.5})
        pair = mixed_pair(Distill(mix=mix, support=TopKSupport(k=2, of="target")), views, student, None, "term")
        assert pair.ids is not None and pair.ids.tolist() == [ids]


def test_toward_student_at_picked_rows_only() -> None:
    # Logits ln 9 and 0 against 0 and 0: at γ = ½ the target's logit difference is halved, odds 3.
    target, student = events(0.9, 0.1), events(0.5, 0.5)
    both = [Distribution(d.log_probs.repeat(2, 1), d.probs.repeat(2, 1)) for d in (target, student)]
    mix = TowardStudent(share=0.5)
    pair = mixed_pair(Distill(mix=mix), {"teacher": both[0]}, both[1], torch.tensor([True, False]), "term")
    torch.testing.assert_close(pair.target.probs, torch.tensor([[0.75, 0.25], [0.9, 0.1]], dtype=torch.float64))


@given(
    seed=st.integers(0, 10**6),
    width=st.integers(2, 30),
    share=st.floats(0.05, 0.95),
    order=st.sampled_from([0.4, 0.95, 1.6]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_renyi_gradient_has_the_effective_exponents(seed: int, width: int, share: float, order: float) -> None:
    """∂D_ρ/∂z = π_θ − π̃ with π̃ ∝ p_T^{αρ} · p_ref^{(1−α)ρ} · π_θ^{1−ρ} (SR-OPSD)."""
    target, student = random_pair(seed, width)
    reference, _ = random_pair(seed + 1, width)
    views = {"teacher": target, "reference": reference}
    term = Distill(mix=GeometricMix(share=share), divergence=Renyi(order=order))
    tilted = target.probs ** (share * order) * reference.probs ** ((1 - share) * order) * student.probs ** (1 - order)
    expected = student.probs - tilted / tilted.sum(-1, keepdim=True)
    torch.testing.assert_close(pair_gradient(term, views, student), expected, atol=1e-11, rtol=1e-8)


@pytest.mark.parametrize("order", [0.5, 0.95])
def test_normalising_the_mixture_changes_no_gradient(order: float) -> None:
    target, student = random_pair(3, 12)
    reference, _ = random_pair(4, 12)
    free = 0.9 * target.log_probs + 0.1 * reference.log_probs
    unnormalised = Distribution(free, free.exp())
    assert (unnormalised.probs.sum(-1) < 0.99).all()
    mixed = geometric(target, reference, 0.9)

    def gradient(of: Distribution) -> Tensor:
        logits = student.log_probs.clone().requires_grad_()
        log_q = torch.log_softmax(logits, -1)
        value = torch.logsumexp(order * of.log_probs + (1 - order) * log_q, -1) / (order - 1)
        return torch.autograd.grad(value.sum(), logits)[0]

    torch.testing.assert_close(gradient(unnormalised), gradient(mixed), rtol=1e-10, atol=1e-13)
    term = Distill(mix=GeometricMix(), divergence=Renyi(order=order))
    ours = pair_gradient(term, {"teacher": target, "reference": reference}, student)
    torch.testing.assert_close(ours, gradient(mixed), rtol=1e-9, atol=1e-12)


def test_renyi_of_a_mixture_tends_to_the_forward_kl() -> None:
    target, student = random_pair(5, 10, spread=1.0)
    reference, _ = random_pair(6, 10, spread=1.0)
    views = {"teacher": target, "reference": reference}
    for order in (1 - 1e-7, 1 + 1e-7):
        near = pair_gradient(Distill(mix=GeometricMix(), divergence=Renyi(order=order)), views, student)
        torch.testing.assert_close(
            near, pair_gradient(Distill(mix=GeometricMix()), views, student), rtol=1e-5, atol=1e-7
        )


def test_the_mixture_minimises_the_weighted_sum_of_kls() -> None:
    """p* = argmin α·KL(p‖p_T) + (1 − α)·KL(p‖p_ref): any other distribution is worse."""
    target, other = random_pair(7, 8, rows=6)
    reference, _ = random_pair(8, 8, rows=6)

    def cost(p: Distribution) -> Tensor:
        return 0.7 * forward_kl(p, target).loss + 0.3 * forward_kl(p, reference).loss

    best = geometric(target, reference, 0.7)
    assert (cost(best) < cost(other)).all()
    for nearby in (
        geometric(best, other, 0.99),
        geometric(target, reference, 0.69),
        geometric(target, reference, 0.71),
    ):
        assert (cost(best) < cost(nearby)).all()


@pytest.mark.parametrize("rest", ["tail", "renormalise"])
@pytest.mark.parametrize("divergence_spec", [ReverseKL(), Renyi(order=0.9)], ids=str)
def test_all_but_one_id_is_the_full_support_for_a_mixture(divergence_spec: ReverseKL | Renyi, rest: str) -> None:
    target, student = random_pair(9, 9)
    reference, _ = random_pair(10, 9)
    views = {"teacher": target, "reference": reference}
    for order in ("support_first", "mix_first"):
        mix = GeometricMix.model_validate({"order": order})
        full = pair_gradient(Distill(mix=mix, divergence=divergence_spec), views, student)
        for k in (8, 9, 20) if rest == "tail" else (9, 20):
            support = TopKSupport.model_validate({"k": k, "rest": rest})
            term = Distill(mix=mix, divergence=divergence_spec, support=support)
            torch.testing.assert_close(pair_gradient(term, views, student), full, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("support", [FullSupport(), TopKSupport(k=2), TopKSupport(k=2, rest="renormalise")], ids=str)
@pytest.mark.parametrize("order", ["support_first", "mix_first"])
def test_impossible_ids(support: FullSupport | TopKSupport, order: str) -> None:
    """Shared holes do not exist; a hole of the reference alone is an error that names it."""
    mix = GeometricMix.model_validate({"order": order, "share": 0.5})
    term = Distill(mix=mix, support=support)
    holes = torch.tensor([[1.0, 2.0, -torch.inf, 0.5]])
    views = {"teacher": softmax(holes), "reference": softmax(holes.flip(-1).roll(-1, -1))}
    assert views["reference"].probs[0, 0] == 0
    views["reference"] = softmax(torch.tensor([[0.1, 0.3, -torch.inf, 0.0]]))
    pair = mixed_pair(term, views, softmax(holes), None, "term 'x'")
    assert torch.isfinite(divergence(term.divergence, pair.target, pair.student).loss).all()
    views["reference"] = softmax(torch.tensor([[0.1, -torch.inf, -torch.inf, 0.0]]))
    with pytest.raises(ValueError, match=r"term 'x'.*-inf for the reference of the mix"):
        mixed_pair(term, views, softmax(holes), None, "term 'x'")
