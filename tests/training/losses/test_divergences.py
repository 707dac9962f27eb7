"""Golden values with their derivation, and the properties every divergence must have."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.losses.distributions import Distribution, from_log_probs, softmax
from training.losses.divergences import Direction, TokenDivergence, divergence, forward_kl, jsd, renyi, reverse_kl
from training.losses.supports import restrict
from training.method import JSD, Divergence, ForwardKL, FullSupport, Renyi, ReverseKL

ALL: list[Divergence] = [
    ForwardKL(),
    ReverseKL(),
    JSD(beta=0.5),
    JSD(beta=0.1),
    Renyi(order=0.95),
    Renyi(order=0.5),
    Renyi(order=2.0),
    Renyi(order=0.95, direction="student||target"),
    Renyi(order=2.0, direction="student||target"),
]
EVERY = pytest.mark.parametrize("spec", ALL, ids=str)


def events(*probs: float, dtype: torch.dtype = torch.float64) -> Distribution:
    return from_log_probs(torch.tensor([probs], dtype=dtype).log())


def gradient(spec: Divergence, target: Distribution, student: Distribution) -> Tensor:
    pair = restrict(FullSupport(), target, student)
    return pair.by_logits(divergence(spec, pair.target, pair.student).slope)


def random_pair(
    seed: int, width: int, spread: float = 2.0, rows: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[Distribution, Distribution]:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(2, rows, width, generator=generator, dtype=torch.float64)
    return softmax(logits[0].to(dtype)), softmax(logits[1].to(dtype))


P, Q = events(0.5, 0.5), events(0.25, 0.75)
TEACHER, STUDENT = events(0.8, 0.2), events(0.5, 0.5)

GOLDEN = [
    # ½ ln(½ / ¼) + ½ ln(½ / ¾) = ½ ln(2 · ⅔) = ½ ln(4/3)
    ("forward", lambda: forward_kl(P, Q), 0.5 * math.log(4 / 3), 0.143841),
    # ¼ ln(¼ / ½) + ¾ ln(¾ / ½) = ¾ ln 3 − ln 2
    ("reverse", lambda: reverse_kl(P, Q), 0.75 * math.log(3) - math.log(2), 0.130812),
    # m = (3/8, 5/8): ½ [½ ln(4/3) + ½ ln(4/5)] + ½ [¼ ln(2/3) + ¾ ln(6/5)]
    (
        "jsd",
        lambda: jsd(P, Q, 0.5),
        (0.5 * math.log(4 / 3) + 0.5 * math.log(4 / 5) + 0.25 * math.log(2 / 3) + 0.75 * math.log(6 / 5)) / 2,
        0.033822,
    ),
    # ln(p₁²/q₁ + p₂²/q₂) = ln(1 + 1/3)
    ("renyi 2", lambda: renyi(P, Q, 2.0), math.log(4 / 3), 0.287682),
    # −2 ln(√(1/8) + √(3/8))
    ("renyi 0.5", lambda: renyi(P, Q, 0.5), -2 * math.log(math.sqrt(1 / 8) + math.sqrt(3 / 8)), 0.069336),
    # 0.8 ln(0.8/0.5) + 0.2 ln(0.2/0.5)
    ("forward, .8/.5", lambda: forward_kl(TEACHER, STUDENT), 0.8 * math.log(1.6) + 0.2 * math.log(0.4), 0.19274),
    # 0.5 ln(0.5/0.8) + 0.5 ln(0.5/0.2) = ½ ln(0.625 · 2.5)
    ("reverse, .8/.5", lambda: reverse_kl(TEACHER, STUDENT), 0.5 * math.log(0.625 * 2.5), 0.22314),
    # m = (0.65, 0.35)
    (
        "jsd, .8/.5",
        lambda: jsd(TEACHER, STUDENT, 0.5),
        (0.8 * math.log(0.8 / 0.65) + 0.2 * math.log(0.2 / 0.35) + 0.5 * math.log(0.25 / (0.65 * 0.35))) / 2,
        0.05067,
    ),
]


@pytest.mark.parametrize(("name", "computed", "derived", "known"), GOLDEN, ids=[row[0] for row in GOLDEN])
def test_golden_values(name: str, computed: Callable[[], TokenDivergence], derived: float, known: float) -> None:
    value = computed().loss.item()
    assert value == pytest.approx(derived, rel=1e-12)
    assert value == pytest.approx(known, abs=5e-6)


@pytest.mark.parametrize(("beta", "known"), [(0.0001, 0.0000144), (0.01, 0.00142), (0.1, 0.01275), (0.9, 0.01183)])
def test_jsd_shrinks_at_the_ends(beta: float, known: float) -> None:
    # Independent numbers for P, Q above; rounded to the digits given.
    assert jsd(P, Q, beta).loss.item() == pytest.approx(known, rel=5e-3)


def test_normalised_jsd_runs_from_one_kl_to_the_other() -> None:
    betas = [1e-4, 0.1, 0.5, 0.9, 1 - 1e-4]
    curve = [jsd(P, Q, beta).loss.item() / (beta * (1 - beta)) for beta in betas]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] == pytest.approx(forward_kl(P, Q).loss.item(), rel=1e-3)
    assert curve[-1] == pytest.approx(reverse_kl(P, Q).loss.item(), rel=1e-3)


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.1, 1.5])
def test_jsd_refuses_the_ends_and_names_the_kls(beta: float) -> None:
    with pytest.raises(ValueError, match="forward_kl or reverse_kl"):
        jsd(P, Q, beta)


@pytest.mark.parametrize("order", [0.0, 1.0, -2.0])
def test_renyi_refuses_orders_without_a_meaning(order: float) -> None:
    with pytest.raises(ValueError, match="order"):
        renyi(P, Q, order)


@given(seed=st.integers(0, 10**6), width=st.integers(2, 40), beta=st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_swapping_sides_and_beta_gives_the_same_number(seed: int, width: int, beta: float) -> None:
    target, student = random_pair(seed, width)
    torch.testing.assert_close(
        jsd(target, student, beta).loss, jsd(student, target, 1 - beta).loss, rtol=1e-10, atol=1e-12
    )
    torch.testing.assert_close(forward_kl(target, student).loss, reverse_kl(student, target).loss)
    for order in (0.5, 2.0):
        torch.testing.assert_close(
            renyi(target, student, order).loss, renyi(student, target, order, "student||target").loss
        )


@EVERY
@given(seed=st.integers(0, 10**6), width=st.integers(2, 60), spread=st.floats(0.01, 8))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_never_negative_and_zero_only_at_equality(spec: Divergence, seed: int, width: int, spread: float) -> None:
    target, student = random_pair(seed, width, spread)
    assert (divergence(spec, target, student).loss > 0).all()
    equal = divergence(spec, target, target)
    torch.testing.assert_close(equal.loss, torch.zeros_like(equal.loss), atol=1e-13, rtol=0)
    at_equality = gradient(spec, target, target)
    torch.testing.assert_close(at_equality, torch.zeros_like(at_equality), atol=1e-13, rtol=0)


@EVERY
@given(seed=st.integers(0, 10**6), width=st.integers(2, 30), spread=st.floats(0.1, 4))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_gradient_is_the_slope_of_the_value(spec: Divergence, seed: int, width: int, spread: float) -> None:
    """Central differences along a random direction of the student's logits, in float64."""
    generator = torch.Generator().manual_seed(seed)
    target, student = (spread * torch.randn(1, width, generator=generator, dtype=torch.float64) for _ in range(2))
    direction = torch.randn(1, width, generator=generator, dtype=torch.float64)
    step = 1e-5
    ahead, behind = (
        divergence(spec, softmax(target), softmax(student + sign * step * direction)).loss.item() for sign in (1, -1)
    )
    computed = (gradient(spec, softmax(target), softmax(student)) * direction).sum().item()
    assert computed == pytest.approx((ahead - behind) / (2 * step), rel=2e-5, abs=2e-7)


@given(seed=st.integers(0, 10**6), width=st.integers(2, 40))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_renyi_tends_to_the_kl_of_its_direction(seed: int, width: int) -> None:
    target, student = random_pair(seed, width, spread=1.0)
    for order in (1 - 1e-7, 1 + 1e-7):
        torch.testing.assert_close(
            renyi(target, student, order).loss, forward_kl(target, student).loss, rtol=1e-5, atol=1e-8
        )
        torch.testing.assert_close(
            renyi(target, student, order, "student||target").loss,
            reverse_kl(target, student).loss,
            rtol=1e-5,
            atol=1e-8,
        )


@pytest.mark.parametrize("order", [0.5, 0.95, 0.999, 1.001, 2.0])
@pytest.mark.parametrize("direction", ["target||student", "student||target"])
def test_renyi_keeps_its_digits_in_fp32(order: float, direction: Direction) -> None:
    for spread in (0.05, 1.0, 4.0):
        target, student = random_pair(7, 500, spread, rows=16, dtype=torch.float32)
        exact = renyi(
            from_log_probs(target.log_probs.double().log_softmax(-1)),
            from_log_probs(student.log_probs.double().log_softmax(-1)),
            order,
            direction,
        ).loss
        value = renyi(target, student, order, direction).loss.double()
        assert ((value - exact).abs() <= 1e-5 * (1 + exact.abs())).all()


@given(seed=st.integers(0, 10**6), width=st.integers(2, 40), order=st.sampled_from([0.3, 0.95, 1.7]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_renyi_gradient_is_student_minus_tilted_target(seed: int, width: int, order: float) -> None:
    """∂D_ρ/∂z = p_S − π̃ with π̃ ∝ p_T^ρ p_S^(1−ρ) (SR-OPSD)."""
    target, student = random_pair(seed, width)
    tilted = target.probs**order * student.probs ** (1 - order)
    expected = student.probs - tilted / tilted.sum(-1, keepdim=True)
    torch.testing.assert_close(gradient(Renyi(order=order), target, student), expected, atol=1e-12, rtol=1e-9)


def test_jsd_gradient_turns_into_each_kls_at_the_ends() -> None:
    target, student = random_pair(3, 12, spread=1.0)
    for beta, scale, kl in ((1e-5, 1e-5, ForwardKL()), (1 - 1e-5, 1e-5, ReverseKL())):
        torch.testing.assert_close(
            gradient(JSD(beta=beta), target, student) / scale, gradient(kl, target, student), rtol=1e-3, atol=1e-4
        )


def test_jsd_gradient_over_beta_times_one_minus_beta_is_steady() -> None:
    """β is no hidden learning rate once the value is divided by β(1−β): all norms within a factor of 3."""
    target, student = random_pair(5, 12, spread=1.0)
    norms = [gradient(JSD(beta=b), target, student).norm().item() / (b * (1 - b)) for b in (1e-3, 0.1, 0.5, 0.9, 0.999)]
    assert max(norms) / min(norms) < 3


@pytest.mark.parametrize("spec", [ForwardKL(), ReverseKL(), JSD(beta=0.4)], ids=str)
def test_clip_acts_on_each_entry_before_the_sum(spec: Divergence) -> None:
    target, student = random_pair(11, 9, spread=1.5)
    free = divergence(spec, target, student)
    clipped = divergence(spec, target, student, entry_clip=0.05)
    assert (clipped.loss < free.loss).any() and (clipped.loss <= free.loss).all()
    assert (clipped.unclipped == free.loss).all()
    assert (clipped.loss != free.loss.clamp(max=0.05)).any()
    assert clipped.clipped_entries is not None and (clipped.clipped_entries > 0).any()
    # A clipped entry has slope exactly 0, the others keep theirs.
    assert ((clipped.slope == 0) | (clipped.slope == free.slope)).all()
    assert int((clipped.slope != free.slope).sum()) == int(clipped.clipped_entries.sum())


def test_clip_by_hand() -> None:
    # Summands of KL(P‖Q): ½ ln 2 = 0.3466 and ½ ln(2/3) = −0.2027. Capped at 0.05: 0.05 − 0.2027 < 0.
    assert forward_kl(P, Q, entry_clip=0.05).loss.item() == pytest.approx(0.05 + 0.5 * math.log(2 / 3), rel=1e-12)


def test_clip_is_refused_where_there_are_no_summands() -> None:
    with pytest.raises(ValueError, match="Rényi"):
        divergence(Renyi(order=0.5), P, Q, entry_clip=0.1)


@EVERY
def test_huge_logits_stay_finite(spec: Divergence) -> None:
    wild = torch.tensor([[1e4, -1e4, 0.0, 3.0], [-1e4, 1e4, -1e4, 1e4], [0.0, 0.0, 0.0, 0.0]])
    for target, student in ((wild, wild.flip(-1)), (wild, torch.zeros_like(wild)), (torch.zeros_like(wild), wild)):
        assert torch.isfinite(divergence(spec, softmax(target), softmax(student)).loss).all()
        assert torch.isfinite(gradient(spec, softmax(target), softmax(student))).all()


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ids_impossible_on_both_sides_do_not_exist(spec: Divergence, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    target, student = torch.randn(2, 5, 8, generator=generator).to(dtype)
    holes = torch.tensor([2, 6])
    rest = torch.tensor([0, 1, 3, 4, 5, 7])
    expected = divergence(spec, softmax(target[:, rest]), softmax(student[:, rest]))
    expected_gradient = gradient(spec, softmax(target[:, rest]), softmax(student[:, rest]))
    target[:, holes] = student[:, holes] = -torch.inf
    torch.testing.assert_close(divergence(spec, softmax(target), softmax(student)).loss, expected.loss)
    computed = gradient(spec, softmax(target), softmax(student))
    torch.testing.assert_close(computed[:, rest], expected_gradient)
    assert (computed[:, holes] == 0).all()


@EVERY
@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=str)
@pytest.mark.parametrize("width", [50, 151_936])
def test_bf16_logits_do_not_make_it_negative(
    spec: Divergence, dtypes: tuple[torch.dtype, torch.dtype], width: int
) -> None:
    generator = torch.Generator().manual_seed(width)
    floor = -5e-5 if isinstance(spec, Renyi) else -1e-6
    for spread in (0.5, 3.0, 10.0):
        logits = spread * torch.randn(3, width, generator=generator)
        near = logits + 1e-3 * torch.randn(3, width, generator=generator)
        value = divergence(spec, softmax(logits.to(dtypes[0])), softmax(near.to(dtypes[1]))).loss
        assert value.min() >= floor
