"""Every term kind at logits of ±1e4, at ids with logit −inf, in bf16, and at the identities of the papers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from tests.training.losses.every_part import MIXED
from training.losses.names import temperature_of
from training.method import Distill, PolicyGradient, Preference, ReverseKL, SampledKL
from training.objective import Denominators, ObjectiveResult, Term, TokenBatch, objective, weigh

WIDE = 1e4
EVERY = pytest.mark.parametrize("name", list(MIXED))


def run(name: str, sides: Iterable[Tensor], ids: Tensor) -> tuple[ObjectiveResult, Tensor]:
    """The part ``name`` on logits of student, teacher and reference; every per-token value is 1 or true."""
    student, teacher, reference = sides
    term, n = MIXED[name], len(ids)
    views = {"student": student.clone().requires_grad_(), "teacher": teacher, "reference": reference}
    heads: dict[str, nn.Module] = dict.fromkeys(views, nn.Identity())
    ones = torch.ones(n)
    batch = TokenBatch(
        ids,
        torch.zeros(n, dtype=torch.long),
        torch.arange(n),
        {},
        labels={name: ids},
        advantage={name: -ones},
        slope={name: ones},
        toward_student={name: ones > 0},
        old_logprobs={temperature_of(term): -ones},
        sampler_logprobs=-ones,
    )
    terms = {name: term}
    batch = weigh(terms, batch, views, heads, chunk_tokens=3)
    result = objective(terms, batch, views, heads, "student", Denominators.of(terms, batch, 9), chunk_tokens=3)
    result.loss.backward()
    gradient = views["student"].grad
    assert gradient is not None
    return result, gradient


@EVERY
def test_huge_logits_are_finite(name: str) -> None:
    wild = torch.tensor([[WIDE, -WIDE, 0.0, 3.0], [-WIDE, WIDE, -WIDE, WIDE], [0.0, 0.0, 0.0, 0.0]])
    flat = torch.zeros_like(wild)
    ids = torch.tensor([1, 0, 2])
    for student, teacher, reference in (
        (wild, wild.flip(-1), flat),
        (wild, flat, wild),
        (flat, wild, wild.flip(-1)),
        (wild.flip(-1), wild, wild),
    ):
        result, gradient = run(name, (student, teacher, reference), ids)
        assert torch.isfinite(result.loss) and torch.isfinite(gradient).all()
        assert all(torch.isfinite(torch.tensor(pair)).all() for pair in result.metrics.values())


@EVERY
def test_ids_impossible_on_all_sides_do_not_exist(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    student, teacher, reference = torch.randn(3, 4, 9, generator=generator, dtype=torch.float64)
    holes, rest = torch.tensor([2, 6]), torch.tensor([0, 1, 3, 4, 5, 7, 8])
    ids = torch.tensor([0, 3, 6, 1])
    expected, expected_gradient = run(name, [side[:, rest] for side in (student, teacher, reference)], ids)
    for side in (student, teacher, reference):
        side[:, holes] = -torch.inf
    result, gradient = run(name, (student, teacher, reference), rest[ids])
    torch.testing.assert_close(result.loss, expected.loss)
    torch.testing.assert_close(gradient[:, rest], expected_gradient)
    assert (gradient[:, holes] == 0).all()


@EVERY
def test_an_id_impossible_on_one_side_is_an_error(name: str) -> None:
    """The likeliest id, the sampled one, is impossible for one side: whoever reads both sides says so."""
    term, flat = MIXED[name], torch.zeros(1, 6)
    peaked = flat.clone()
    peaked[0, 1] = 5.0
    ids, hole = torch.tensor([1]), flat.clone()
    hole[0, 1] = -torch.inf
    # "clipped" looks at the target's likeliest ids, and what the target cannot produce is not among them.
    sides = [("teacher", (peaked, hole, peaked))] if isinstance(term, Distill) and name != "clipped" else []
    if isinstance(term, Distill) and term.mix is not None and term.mix.kind == "geometric":
        sides.append(("reference", (peaked, peaked, hole)))
    if isinstance(term, SampledKL):
        sides.append(("reference", (peaked, peaked, hole)))
    if name not in ("spread", "anchored", "trust_region"):  # these look at the student's likeliest ids, or at it alone
        sides.append(("student", (hole, peaked, peaked)))
    assert sides or name == "spread"
    for _, logits in sides:
        with pytest.raises(ValueError, match=rf"term '{name}'.*(-inf|probability 0)"):
            run(name, logits, ids)


@EVERY
def test_bf16_inputs(name: str) -> None:
    """bf16 logits give what the same numbers give in fp32."""
    generator = torch.Generator().manual_seed(2)
    sides = [side.bfloat16() for side in torch.randn(3, 5, 30, generator=generator)]
    ids = torch.randint(30, (5,), generator=generator)
    low, low_gradient = run(name, sides, ids)
    full, full_gradient = run(name, [side.float() for side in sides], ids)
    assert low.loss.dtype == torch.float32 and low_gradient.dtype == torch.bfloat16
    torch.testing.assert_close(low.loss, full.loss, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(low_gradient.float(), full_gradient, rtol=1e-2, atol=1e-5)


def test_a_wild_ratio_is_counted_in_every_metric_that_has_one() -> None:
    flat, teacher = torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 0.0, 400.0]])
    student = torch.tensor([[0.0, 0.0, 0.0, -400.0]])
    ids = torch.tensor([3])
    for name, metrics in (
        ("drift", ("ratio_bounded", "importance_bounded")),
        ("reward", ("ratio_bounded",)),
        ("anchored", ("importance_bounded",)),
    ):
        result, gradient = run(name, (student, flat, teacher), ids)
        assert torch.isfinite(gradient).all()
        for metric in metrics:
            assert result.metrics[f"{metric}/{name}"] == (1.0, 1.0), (name, metric)


# --- identities of the papers -------------------------------------------------------------------------------------


def logit_gradient(term: Term, ids: Tensor, advantage: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    views = {"student": student.clone().requires_grad_(), "teacher": teacher}
    heads: dict[str, nn.Module] = dict.fromkeys(views, nn.Identity())
    given = {"t": advantage} if isinstance(term, PolicyGradient) else {}
    batch = TokenBatch(ids, torch.zeros_like(ids), torch.arange(len(ids)), {}, advantage=given)
    result = objective({"t": term}, batch, views, heads, chunk_tokens=9)
    return torch.autograd.grad(result.loss, views["student"])[0]


def test_full_reverse_kl_is_the_policy_gradient_of_a_centred_advantage() -> None:
    """SDPG, proposition 3.1: ∂KL(p‖q) = E_{a∼p}[−A(a)·∂log p(a)] with A(a) = D̄ − log(p(a)/q(a))."""
    generator = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(2, 1, 7, generator=generator, dtype=torch.float64)
    p, q = torch.softmax(student, -1)[0], torch.softmax(teacher, -1)[0]
    log_ratio = (p / q).log()
    advantage = (p * log_ratio).sum() - log_ratio
    assert abs(float((p * advantage).sum())) < 1e-12
    sampled = torch.zeros_like(student)
    for a in range(7):
        term = PolicyGradient(temperature=1.0)
        sampled += p[a] * logit_gradient(term, torch.tensor([a]), advantage[a : a + 1], student, teacher)
    exact = logit_gradient(Distill(divergence=ReverseKL()), torch.tensor([0]), advantage[:1], student, teacher)
    torch.testing.assert_close(sampled, exact, rtol=1e-6, atol=1e-7)


def test_a_preference_has_the_gradient_of_its_slopes() -> None:
    """Σ_t slope_t·log q(y_t), without a denominator: what the loss's chain rule asks for."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(5, 6, generator=generator, dtype=torch.float64).requires_grad_()
    ids, slope = torch.tensor([0, 3, 5, 2, 2]), torch.tensor([0.3, 0.3, -0.2, -0.2, 0.0])
    term = Preference(of="teacher", against="prior", temperature=0.5, coefficient=2.0)
    batch = TokenBatch(ids, torch.tensor([0, 0, 1, 1, 2]), torch.arange(5), {}, slope={"e": slope})
    result = objective({"e": term}, batch, {"teacher": logits}, {"teacher": nn.Identity()}, "teacher", chunk_tokens=2)
    value = 2 * (slope.double() * torch.log_softmax(logits / 0.5, -1).gather(-1, ids[:, None]).squeeze(-1)).sum()
    torch.testing.assert_close(result.loss.detach(), value.detach())
    torch.testing.assert_close(torch.autograd.grad(result.loss, logits)[0], torch.autograd.grad(value, logits)[0])
    assert "loss/e" not in result.metrics
