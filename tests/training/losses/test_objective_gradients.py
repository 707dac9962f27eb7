"""Precision, vocabulary widths and temperatures of the objective, and what its gradient does."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.training.losses.every_part import MIXED
from tests.training.losses.ragged import gradient_of, ragged
from training.method import JSD, Distill, Divergence, ForwardKL, PolicyGradient, Renyi, ReverseKL
from training.objective import Term, TokenBatch, objective


@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16)], ids=str)
def test_low_precision_heads_never_show_a_negative_divergence(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    student_type, teacher_type = dtypes
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(64, 16, generator=generator)
    weight = torch.randn(500, 16, generator=generator)
    views, heads = {}, {}
    for view, dtype, noise in (("student", student_type, 1e-3), ("teacher", teacher_type, 0.0)):
        views[view] = (hidden + noise * torch.randn(64, 16, generator=generator)).to(dtype)
        heads[view] = nn.Linear(16, 500, bias=False, dtype=dtype)
        heads[view].weight = nn.Parameter(weight.to(dtype))
    zeros = torch.zeros(64, dtype=torch.long)
    batch = TokenBatch(zeros, zeros, torch.arange(64), {})
    for divergence, floor in ((ForwardKL(), -1e-6), (ReverseKL(), -1e-6), (JSD(), -1e-6), (Renyi(order=0.95), -5e-5)):
        views["student"].requires_grad_().grad = None
        result = objective(
            {"d": Distill(divergence=divergence)},
            batch,
            views,
            heads,
            chunk_tokens=10,
            keep=frozenset({"divergence/d"}),
        )
        result.loss.backward()
        assert result.loss.dtype == torch.float32
        assert result.token_values["divergence/d"].min() >= floor
        assert views["student"].grad.dtype == student_type and torch.isfinite(views["student"].grad).all()


@pytest.mark.parametrize(("student_width", "teacher_width"), [(10, 12), (12, 10)])
def test_different_vocabularies_are_cut_to_the_shared_width(student_width: int, teacher_width: int) -> None:
    """Ids one side lacks have probability exactly 0: the result equals that of heads without those rows."""
    data = ragged(seed=13)
    widths = {"student": student_width, "teacher": teacher_width}
    generator = torch.Generator().manual_seed(0)
    weights = {
        view: torch.randn(width, hidden.shape[1], generator=generator, dtype=torch.float64)
        for (view, width), hidden in zip(widths.items(), (data.student, data.teacher), strict=True)
    }
    data.batch.ids.clamp_(max=9)

    def run(rows: dict[str, int]) -> tuple[float, Tensor, Tensor]:
        heads = {}
        for view, weight in weights.items():
            heads[view] = nn.Linear(weight.shape[1], rows[view], bias=False)
            heads[view].weight = nn.Parameter(weight[: rows[view]].clone())
        hidden = {"student": data.student, "teacher": data.teacher}
        result = objective({"masked": Distill()}, data.batch, hidden, heads, chunk_tokens=4)
        result.loss.backward()
        return float(result.loss.detach()), gradient_of(data.student), gradient_of(heads["student"].weight)

    wide, cut = run(widths), run({"student": 10, "teacher": 10})
    assert wide[0] == pytest.approx(cut[0], rel=1e-12)
    torch.testing.assert_close(wide[1], cut[1])
    torch.testing.assert_close(wide[2][:10], cut[2])
    assert (wide[2][10:] == 0).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_a_teacher_that_is_the_student_has_divergence_exactly_zero(temperature: float) -> None:
    data = ragged(seed=14, dtype=torch.float32)
    for divergence in (ForwardKL(), ReverseKL()):
        result = objective(
            {"d": Distill(divergence=divergence, temperature=temperature)},
            replace(data.batch, mask={}),
            {"student": data.student, "teacher": data.student},
            {"student": data.head, "teacher": data.head},
            chunk_tokens=4,
        )
        assert result.loss.item() == 0.0


def test_policy_ratio_is_one_when_the_temperature_matches() -> None:
    """Log-probabilities recorded at the sampling temperature, and a term that uses it: mean ratio 1."""
    data = ragged(seed=15)
    own = torch.log_softmax(data.head(data.student).detach() / 0.7, -1)
    at_07 = own.gather(-1, data.batch.ids[:, None]).squeeze(-1).float()
    data.old_logprobs = at_07
    for temperature, expected in ((0.7, True), (1.0, False)):
        numerator, denominator = data.run({"masked": PolicyGradient(temperature=temperature)}).metrics["ratio/masked"]
        assert (abs(numerator / denominator - 1) < 1e-3) is expected


def test_log_ratio_beyond_the_bound_is_counted() -> None:
    data = ragged(seed=15)
    assert data.old_logprobs is not None
    data.old_logprobs[0] -= 100
    data.advantage[:] = -1
    result = data.run({"masked": PolicyGradient(temperature=1.0)})
    assert torch.isfinite(result.loss)
    assert result.metrics["ratio_bounded/masked"][0] == 1
    result.loss.backward()
    assert torch.isfinite(gradient_of(data.student)).all()


# --- what the gradient does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), JSD(), Renyi(order=0.9)], ids=str)
def test_descent_reduces_the_divergence_at_every_step(divergence: Divergence) -> None:
    data = ragged(seed=16)
    terms: dict[str, Term] = {"masked": Distill(divergence=divergence)}
    history = []
    for _ in range(20):
        result = data.run(terms)
        result.loss.backward()
        by_hidden = gradient_of(data.student)
        history.append(result.loss.item())
        with torch.no_grad():
            data.student -= 0.3 * by_hidden
    assert all(after <= before + 1e-4 for before, after in itertools.pairwise(history))
    assert history[-1] < 0.97 * history[0]


@pytest.mark.parametrize("name", list(MIXED))
def test_every_term_alone_has_a_gradient(name: str) -> None:
    data = ragged(seed=6)
    data.batch = replace(data.batch, mask={})
    term = MIXED[name].model_copy(update={"coefficient": 1.0})
    result = data.run({name: term}, weighed=True, denominators=data.counts({name: term}))
    result.loss.backward()
    by_hidden, by_weight = gradient_of(data.student), gradient_of(data.head.weight)
    assert by_hidden.norm() > 1e-4 and by_weight.norm() > 1e-4
    assert result.metrics[f"logit_gradient/{name}"][0] > 0


def test_advantage_of_log_ratio_has_the_expected_gradient_of_reverse_kl() -> None:
    """E_{y∼p}[−A(y) ∇log p(y)], A = sg(log q − log p), is ∇KL(p‖q): averaged over all outcomes of 3 tokens."""
    logits = torch.tensor([[0.3, -1.0, 0.8]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0, 0.2, -0.5]], dtype=torch.float64)
    views: dict[str, Tensor] = {"student": logits, "teacher": target}
    heads: dict[str, nn.Module] = {"student": nn.Identity(), "teacher": nn.Identity()}
    p, q = torch.softmax(logits.detach(), -1)[0], torch.softmax(target, -1)[0]
    zero = torch.zeros(1, dtype=torch.long)

    def gradient(term: Term, label: int) -> Tensor:
        advantage = (q[label] / p[label]).log().reshape(1)
        batch = TokenBatch(torch.tensor([label]), zero, zero, {}, advantage={"t": advantage})
        batch = batch if isinstance(term, PolicyGradient) else replace(batch, advantage={})
        result = objective({"t": term}, batch, views, heads, chunk_tokens=1)
        return torch.autograd.grad(result.loss, logits)[0]

    sampled = sum(p[label] * gradient(PolicyGradient(temperature=1.0), label) for label in range(3))
    torch.testing.assert_close(sampled, gradient(Distill(divergence=ReverseKL()), 0))


@pytest.mark.parametrize("chunk_tokens", [2, 64])
def test_every_view_has_its_own_hidden_width(chunk_tokens: int) -> None:
    torch.manual_seed(0)
    student = torch.randn(5, 32, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(5, 48, dtype=torch.float64)
    heads = {
        "student": torch.nn.Linear(32, 11, bias=False, dtype=torch.float64),
        "teacher": torch.nn.Linear(48, 11, bias=False, dtype=torch.float64),
    }
    ids = torch.zeros(5, dtype=torch.int64)
    batch = TokenBatch(ids, ids, torch.arange(5), {"pull": torch.ones(5, dtype=torch.bool)})

    hidden = {"student": student, "teacher": teacher}
    found = objective({"pull": Distill()}, batch, hidden, heads, chunk_tokens=chunk_tokens).loss
    (gradient,) = torch.autograd.grad(found, student)

    own, target = heads["student"](student).log_softmax(-1), heads["teacher"](teacher).log_softmax(-1).detach()
    plain = (target.exp() * (target - own)).sum(-1).mean()
    (expected,) = torch.autograd.grad(plain, student)
    assert found.item() == pytest.approx(plain.item(), rel=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
