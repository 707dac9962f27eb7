"""Top-k supports: which ids, what happens to the rest, and the way back to the logits."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.training.losses.test_divergences import ALL, EVERY, random_pair
from training.losses.bounds import SMALLEST_TAIL
from training.losses.distributions import Distribution, from_log_probs, softmax
from training.losses.divergences import divergence, forward_kl
from training.losses.supports import label_by_logits, restrict, top_ids
from training.method import Divergence, FullSupport, Support, TopKSupport

Side = Literal["target", "student"]


def value(spec: Divergence, support: Support, target: Distribution, student: Distribution) -> Tensor:
    pair = restrict(support, target, student)
    return divergence(spec, pair.target, pair.student).loss


def gradient(spec: Divergence, support: Support, target: Distribution, student: Distribution) -> Tensor:
    pair = restrict(support, target, student)
    return pair.by_logits(divergence(spec, pair.target, pair.student).slope)


def test_by_hand() -> None:
    target = from_log_probs(torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64).log())
    student = from_log_probs(torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log())
    of_target = restrict(TopKSupport(k=2, of="target"), target, student)
    of_student = restrict(TopKSupport(k=2, of="student"), target, student)
    renormalised = restrict(TopKSupport(k=2, of="student", rest="renormalise"), target, student)

    def is_close(result: Distribution, *probs: float) -> None:
        expected = torch.tensor([probs], dtype=torch.float64)
        torch.testing.assert_close(result.probs, expected)
        torch.testing.assert_close(result.log_probs, expected.log())

    is_close(of_target.target, 0.5, 0.3, 0.2)
    is_close(of_target.student, 0.1, 0.2, 0.7)
    is_close(of_student.target, 0.05, 0.15, 0.8)
    is_close(of_student.student, 0.4, 0.3, 0.3)
    is_close(renormalised.target, 0.25, 0.75)
    is_close(renormalised.student, 4 / 7, 3 / 7)
    assert of_student.ids is not None and of_student.ids.tolist() == [[3, 2]]
    # KL over the three events of the teacher's top 2 and its tail.
    assert forward_kl(of_target.target, of_target.student).loss.item() == pytest.approx(
        0.5 * math.log(5) + 0.3 * math.log(1.5) + 0.2 * math.log(2 / 7), rel=1e-12
    )


@EVERY
@given(seed=st.integers(0, 10**6), width=st.integers(3, 30), of=st.sampled_from(["target", "student"]))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_the_whole_vocabulary_and_all_but_one_are_the_full_support(
    spec: Divergence, seed: int, width: int, of: Side
) -> None:
    """With k = V − 1 the tail holds exactly one id, so nothing is merged."""
    target, student = random_pair(seed, width)
    for k in (width - 1, width, width + 5):
        support = TopKSupport(k=k, of=of)
        torch.testing.assert_close(
            value(spec, support, target, student), value(spec, FullSupport(), target, student), rtol=1e-9, atol=1e-11
        )
        torch.testing.assert_close(
            gradient(spec, support, target, student),
            gradient(spec, FullSupport(), target, student),
            rtol=1e-8,
            atol=1e-10,
        )


@EVERY
@given(seed=st.integers(0, 10**6), width=st.integers(3, 30), data=st.data(), of=st.sampled_from(["target", "student"]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_tail_bucket_never_exceeds_the_full_divergence(
    spec: Divergence, seed: int, width: int, data: st.DataObject, of: Side
) -> None:
    target, student = random_pair(seed, width)
    k = data.draw(st.integers(1, width - 1))
    coarse = value(spec, TopKSupport(k=k, of=of), target, student)
    assert (coarse <= value(spec, FullSupport(), target, student) + 1e-10).all()
    assert (coarse >= -1e-12).all()


def test_renormalising_can_exceed_the_full_divergence() -> None:
    # Top 2 of the target carry .02 of the student, split 1:19 where the target splits them 1:1.
    target = from_log_probs(torch.tensor([[0.35, 0.35, 0.3]], dtype=torch.float64).log())
    student = from_log_probs(torch.tensor([[0.0175, 0.3325, 0.65]], dtype=torch.float64).log())
    renormalised = value(ALL[0], TopKSupport(k=2, of="target", rest="renormalise"), target, student)
    assert renormalised > 0.829 and value(ALL[0], FullSupport(), target, student) > 0.8
    # ½ ln(½/.05) + ½ ln(½/.95)
    assert renormalised.item() == pytest.approx(0.5 * math.log(10) + 0.5 * math.log(0.5 / 0.95), rel=1e-12)


@EVERY
@pytest.mark.parametrize("rest", ["tail", "renormalise"])
def test_gradient_by_central_differences(spec: Divergence, rest: Literal["tail", "renormalise"]) -> None:
    generator = torch.Generator().manual_seed(2)
    target, student, direction = torch.randn(3, 1, 9, generator=generator, dtype=torch.float64)
    support = TopKSupport(k=4, of="student", rest=rest)
    step = 1e-6
    ahead, behind = (
        value(spec, support, softmax(target), softmax(student + sign * step * direction)).item() for sign in (1, -1)
    )
    computed = (gradient(spec, support, softmax(target), softmax(student)) * direction).sum().item()
    assert computed == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-9)


@EVERY
def test_a_tail_at_its_floor_is_constant(spec: Divergence) -> None:
    target, student = (
        softmax(torch.tensor([[0.0, 1.0, -1.0, 0.5]])),
        softmax(torch.tensor([[40.0, 39.0, -40.0, -41.0]])),
    )
    pair = restrict(TopKSupport(k=2, of="student"), target, student)
    assert pair.student.probs[0, -1].item() == pytest.approx(SMALLEST_TAIL)
    assert pair.tail_moves is not None and not pair.tail_moves.any()
    moved = pair.by_logits(divergence(spec, pair.target, pair.student).slope)
    assert torch.isfinite(moved).all()
    assert moved[0, 2:].abs().max() < 1e-6


def test_top_ids_are_sorted_by_probability() -> None:
    assert top_ids(softmax(torch.tensor([[0.0, 3.0, 2.0], [5.0, 1.0, 4.0]])), 2).tolist() == [[1, 2], [0, 2]]


def test_impossible_ids_matter_only_inside_the_support() -> None:
    target = softmax(torch.tensor([[3.0, 2.0, -torch.inf]]))
    student = softmax(torch.tensor([[3.0, 2.0, 0.0]]))
    inside = restrict(TopKSupport(k=2, of="student"), target, student)
    assert torch.isfinite(forward_kl(inside.target, inside.student).loss).all()
    with pytest.raises(ValueError, match="one side only"):
        restrict(FullSupport(), target, student, "term 'x'")
    with pytest.raises(ValueError, match="term 'x'"):
        restrict(TopKSupport(k=2, of="student"), target, softmax(torch.tensor([[3.0, 0.0, 2.0]])), "term 'x'")


def test_label_gradient_is_onehot_minus_softmax() -> None:
    student = from_log_probs(torch.tensor([[0.2, 0.3, 0.5]]).log())
    # ∂(−log p₁)/∂z = p − onehot(1); with slope 2 it is 2·(onehot(1) − p).
    torch.testing.assert_close(
        label_by_logits(torch.tensor([-1.0]), torch.tensor([1]), student), torch.tensor([[0.2, -0.7, 0.5]])
    )
    torch.testing.assert_close(
        label_by_logits(torch.tensor([2.0]), torch.tensor([1]), student), torch.tensor([[-0.4, 1.4, -1.0]])
    )
