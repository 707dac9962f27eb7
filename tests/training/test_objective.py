"""The objective against the float64 reference, and what must not change it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.losses.ragged import VOCABULARY, Ragged, gradient_of, product_term, ragged, without_old
from tests.training.losses.reference import ReferenceTerm
from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    Divergence,
    ForwardKL,
    PolicyGradient,
    Reduction,
    Renyi,
    ReverseKL,
    TopKSupport,
)
from training.objective import Denominators, ObjectiveResult, Term, TokenBatch, objective

DIVERGENCES = [
    ReferenceTerm("distill", "forward_kl"),
    ReferenceTerm("distill", "reverse_kl"),
    ReferenceTerm("distill", "jsd", 0.5),
    ReferenceTerm("distill", "jsd", 0.1),
    ReferenceTerm("distill", "forward_kl", clip=0.05),
    ReferenceTerm("distill", "reverse_kl", clip=0.05),
    ReferenceTerm("distill", "jsd", 0.3, clip=0.02),
    ReferenceTerm("distill", "renyi", 0.95),
    ReferenceTerm("distill", "renyi", 0.4),
    ReferenceTerm("distill", "renyi", 2.0),
    ReferenceTerm("distill", "renyi", 0.95, swapped=True),
    ReferenceTerm("distill", "renyi", 1.5, swapped=True),
]
SUPPORTS = [(None, "student", "tail"), *itertools.product([3], ["student", "target"], ["tail", "renormalise"])]
REDUCTIONS = ["token_mean", "sequence_mean", "constant"]


def variants(term: ReferenceTerm) -> list[ReferenceTerm]:
    supports = SUPPORTS if term.kind == "distill" else [(None, "student", "tail")]
    temperatures = [1.0] if term.kind == "cross_entropy" else [1.0, 0.7]
    return [
        replace(term, top_k=k, top_of=of, rest=rest, temperature=temperature, reduction=reduction, coefficient=1.5)
        for (k, of, rest), temperature, reduction in itertools.product(supports, temperatures, REDUCTIONS)
    ]


def compare(data: Ragged, name: str, term: ReferenceTerm, value_tolerance: float, gradient_tolerance: float) -> None:
    value, by_hidden, by_weight = data.expected(name, term)
    terms = {name: product_term(term)}
    result = data.run(terms, denominators=Denominators.of(terms, data.batch, data.max_new_tokens))
    result.loss.backward()
    assert abs(result.loss.item() - value.item()) <= value_tolerance * (1 + abs(value.item())), term
    torch.testing.assert_close(gradient_of(data.student).double(), by_hidden, atol=gradient_tolerance, rtol=0)
    torch.testing.assert_close(gradient_of(data.head.weight).double(), by_weight, atol=gradient_tolerance, rtol=0)
    assert data.teacher.grad is None and data.teacher_head.weight.grad is None


def label(term: ReferenceTerm) -> str:
    return f"{term.divergence}{term.parameter}{'-swapped' * term.swapped}{'-clip' * (term.clip is not None)}"


@pytest.mark.parametrize("term", DIVERGENCES, ids=label)
def test_distillation_equals_the_reference(term: ReferenceTerm) -> None:
    for case in variants(term):
        compare(ragged(seed=1), "masked", case, 1e-10, 1e-10)
        compare(ragged(seed=2, dtype=torch.float32), "masked", case, 5e-5 if term.divergence == "renyi" else 1e-5, 1e-5)


@pytest.mark.parametrize("kind", ["policy_gradient", "cross_entropy"])
def test_label_terms_equal_the_reference(kind: str) -> None:
    for case in variants(ReferenceTerm(kind, clip_high=0.28)):
        compare(ragged(seed=3), "masked", case, 1e-10, 1e-10)
        compare(ragged(seed=4, dtype=torch.float32), "masked", case, 1e-5, 1e-5)
        compare(without_old(ragged(seed=5)), "masked", case, 1e-10, 1e-10)


# --- what must not change the result ------------------------------------------------------------------------------

MIXED: dict[str, Term] = {
    "masked": Distill(divergence=JSD(beta=0.3), temperature=0.8, reduction="sequence_mean"),
    "clipped": Distill(entry_clip=0.05, support=TopKSupport(k=4, of="target"), coefficient=0.5),
    "reward": PolicyGradient(clip_high=0.28, reduction="constant", coefficient=2.0, temperature=0.8),
    "imitation": CrossEntropy(coefficient=0.1),
}
"""Four terms of different kinds, temperatures and reductions at once."""


def gradients(data: Ragged, result: ObjectiveResult) -> tuple[Tensor, Tensor]:
    result.loss.backward()
    return gradient_of(data.student), gradient_of(data.head.weight)


def everything(data: Ragged, terms: Mapping[str, Term] = MIXED, **options: Any) -> tuple[float, Tensor, Tensor]:
    options.setdefault("denominators", Denominators.of(terms, data.batch, data.max_new_tokens))
    result = data.run(terms, **options)
    return (float(result.loss.detach()), *gradients(data, result))


def test_terms_add_up() -> None:
    data = ragged(seed=6)
    whole = everything(data)
    counts = Denominators.of(MIXED, data.batch, data.max_new_tokens)
    parts = []
    for name, term in MIXED.items():
        single = replace(data, batch=replace(data.batch, mask={k: m for k, m in data.batch.mask.items() if k == name}))
        parts.append(everything(single, {name: term}, denominators=counts))
    assert whole[0] == pytest.approx(sum(part[0] for part in parts), rel=1e-12)
    for index in (1, 2):
        torch.testing.assert_close(whole[index], sum(part[index] for part in parts), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunk_size_does_not_matter(dtype: torch.dtype) -> None:
    data = ragged(seed=7, dtype=dtype, lengths=(4, 1, 7, 3, 20))
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    whole = everything(data, chunk_tokens=1000)
    for chunk_tokens in (1, 2, 7, 34):
        parts = everything(data, chunk_tokens=chunk_tokens)
        assert parts[0] == pytest.approx(whole[0], rel=tolerance)
        for index in (1, 2):
            torch.testing.assert_close(parts[index], whole[index], rtol=0, atol=tolerance)


def micro_batches(data: Ragged, groups: list[list[int]]) -> list[tuple[Tensor, Ragged]]:
    """The batch split by sequences: rows of each part, and the part with its sequences renumbered."""
    parts = []
    for group in groups:
        rows = torch.cat([(data.batch.sequence == s).nonzero().squeeze(-1) for s in group])
        batch = TokenBatch(
            ids=data.batch.ids[rows],
            sequence=torch.cat([torch.full((int((data.batch.sequence == s).sum()),), i) for i, s in enumerate(group)]),
            position=data.batch.position[rows],
            mask={name: mask[rows] for name, mask in data.batch.mask.items()},
            advantage=data.advantage[rows],
            old_logprobs=data.old_logprobs[rows],
        )
        student = data.student.detach()[rows].requires_grad_()
        parts.append((rows, replace(data, batch=batch, student=student, teacher=data.teacher[rows])))
    return parts


@pytest.mark.parametrize(
    "groups", [[[s] for s in range(8)], [[0, 1, 2, 3, 4, 5, 6, 7]], [[5], [0, 7, 2], [1, 3], [4, 6]]], ids=str
)
def test_micro_batches_add_up_to_the_batch(groups: list[list[int]]) -> None:
    """Eight ragged sequences in one go, one by one, and in uneven parts: same loss, gradients and metrics."""
    data = ragged(seed=8, lengths=(4, 1, 7, 3, 12, 2, 2, 9))
    data.batch.mask["masked"][data.batch.sequence == 6] = False  # a sequence with nothing kept for this term
    counts = Denominators.of(MIXED, data.batch, data.max_new_tokens)
    whole = data.run(MIXED, denominators=counts)
    by_hidden, by_weight = gradients(data, whole)
    parts = micro_batches(data, groups)
    own = [Denominators.of(MIXED, part.batch, data.max_new_tokens) for _, part in parts]
    assert sum(own[1:], own[0]) == counts
    loss, sums = 0.0, dict.fromkeys(whole.metrics, (0.0, 0.0))
    for rows, part in parts:
        result = part.run(MIXED, denominators=counts)
        result.loss.backward()
        loss += result.loss.item()
        torch.testing.assert_close(gradient_of(part.student), by_hidden[rows], rtol=1e-10, atol=1e-15)
        for name, (numerator, denominator) in result.metrics.items():
            sums[name] = (sums[name][0] + numerator, sums[name][1] + denominator)
    assert loss == pytest.approx(whole.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradient_of(data.head.weight), by_weight, rtol=1e-10, atol=1e-14)
    for name, pair in whole.metrics.items():
        assert sums[name] == pytest.approx(pair, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("garbage", [1e4, float("nan"), float("inf")])
def test_tokens_no_term_uses_are_never_looked_at(garbage: float) -> None:
    data = ragged(seed=10)
    used = data.batch.mask["masked"]
    assert not used.all()
    terms: dict[str, Term] = {"masked": Distill(), "other": PolicyGradient(temperature=1.0)}
    data.batch.mask["other"] = used
    clean = data.run(terms)
    by_hidden, by_weight = gradients(data, clean)
    with torch.no_grad():
        data.student[~used] = garbage
        data.teacher[~used] = -garbage
    data.advantage[~used] = garbage
    data.old_logprobs[~used] = garbage
    data.batch.ids[~used] = 10**9
    dirty = data.run(terms)
    assert torch.equal(dirty.loss, clean.loss) and dirty.metrics == clean.metrics
    dirty_hidden, dirty_weight = gradients(data, dirty)
    assert torch.equal(dirty_hidden, by_hidden) and torch.equal(dirty_weight, by_weight)
    assert (dirty_hidden[~used] == 0).all()


def test_tokens_one_term_masks_do_not_reach_it_through_another() -> None:
    """A token only the imitation term uses carries no advantage and an id the teacher cannot produce."""
    data = ragged(seed=10)
    used = data.batch.mask["masked"]
    data.batch.mask["reward"] = used
    terms: dict[str, Term] = {
        "masked": Distill(),
        "reward": PolicyGradient(temperature=1.0),
        "imitation": CrossEntropy(),
    }
    _, by_hidden, _ = data.expected("imitation", ReferenceTerm("cross_entropy"))
    data.advantage[~used] = torch.nan
    with torch.no_grad():
        data.teacher[~used] *= 1e3
    result = data.run(terms)
    mixed, _ = gradients(data, result)
    assert torch.isfinite(result.loss) and torch.isfinite(mixed).all()
    torch.testing.assert_close(mixed[~used], by_hidden[~used])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_threefold_keeps_the_ranking_of_two_methods(reduction: Reduction) -> None:
    data = ragged(seed=11)
    n = len(data.batch.ids)
    first, second = Distill(reduction=reduction), Distill(divergence=ReverseKL(), reduction=reduction)

    def losses(of: Ragged) -> list[float]:
        return [
            of.run({"masked": t}, denominators=Denominators.of({"masked": t}, of.batch, 9)).loss.item()
            for t in (first, second)
        ]

    def tripled(values: Tensor) -> Tensor:
        return torch.cat([values, values, values])

    batch = data.batch
    padding = torch.arange(3 * n) >= n
    padded = replace(
        data,
        batch=replace(
            batch,
            ids=tripled(batch.ids),
            sequence=tripled(batch.sequence),
            position=tripled(batch.position),
            mask={"masked": tripled(batch.mask["masked"]) & ~padding},
            advantage=None,
            old_logprobs=None,
        ),
        student=tripled(data.student.detach()),
        teacher=tripled(data.teacher.detach()) * (1 + padding[:, None]),
    )
    assert losses(padded) == pytest.approx(losses(data), rel=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_kept_is_loss_zero_with_a_valid_backward(reduction: Reduction) -> None:
    data = ragged(seed=12)
    data.batch.mask["masked"][:] = False
    terms: dict[str, Term] = {"masked": Distill(reduction=reduction)}
    elsewhere = Denominators({"masked": 40.0}, {"masked": 3.0}, 9)
    for counts in (Denominators.of(terms, data.batch, 9), elsewhere):
        result = data.run(terms, denominators=counts, keep=frozenset({"divergence/masked"}))
        assert result.loss.item() == 0.0
        by_hidden, by_weight = gradients(data, result)
        assert (by_hidden == 0).all() and (by_weight == 0).all()
        assert result.metrics["loss/masked"] == (0.0, 0.0)
        assert result.token_values["divergence/masked"].isnan().all()


# --- precision, widths, temperature -------------------------------------------------------------------------------


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
    data.batch = replace(data.batch, old_logprobs=at_07)
    for temperature, expected in ((0.7, True), (1.0, False)):
        numerator, denominator = data.run({"masked": PolicyGradient(temperature=temperature)}).metrics["ratio/masked"]
        assert (abs(numerator / denominator - 1) < 1e-3) is expected


def test_log_ratio_beyond_the_bound_is_counted() -> None:
    data = ragged(seed=15)
    old = data.old_logprobs.clone()
    old[0] -= 100
    data.batch = replace(data.batch, old_logprobs=old, advantage=-torch.ones_like(old))
    result = data.run({"masked": PolicyGradient(temperature=1.0)})
    assert torch.isfinite(result.loss)
    assert result.metrics["ratio_bounded/masked"][0] == 1
    assert torch.isfinite(gradients(data, result)[0]).all()


# --- what the gradient does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", [ForwardKL(), ReverseKL(), JSD(), Renyi(order=0.9)], ids=str)
def test_descent_reduces_the_divergence_at_every_step(divergence: Divergence) -> None:
    data = ragged(seed=16)
    terms: dict[str, Term] = {"masked": Distill(divergence=divergence)}
    history = []
    for _ in range(20):
        result = data.run(terms)
        by_hidden, _ = gradients(data, result)
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
    counts = Denominators.of({name: term}, data.batch, data.max_new_tokens)
    result = data.run({name: term}, denominators=counts)
    by_hidden, by_weight = gradients(data, result)
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
        batch = TokenBatch(torch.tensor([label]), zero, zero, {}, advantage=advantage)
        result = objective({"t": term}, batch, views, heads, chunk_tokens=1)
        return torch.autograd.grad(result.loss, logits)[0]

    sampled = sum(p[label] * gradient(PolicyGradient(temperature=1.0), label) for label in range(3))
    torch.testing.assert_close(sampled, gradient(Distill(divergence=ReverseKL()), 0))


# --- metrics, per-token values, errors ----------------------------------------------------------------------------


def test_metrics_by_the_reference() -> None:
    data = ragged(seed=17)
    terms: dict[str, Term] = {
        "masked": Distill(entry_clip=0.05, temperature=0.7, coefficient=3.0),
        "reward": PolicyGradient(temperature=0.7),
    }
    metrics = {name: numerator / denominator for name, (numerator, denominator) in data.run(terms).metrics.items()}
    mask = data.batch.mask["masked"]
    p = torch.softmax(data.teacher_head(data.teacher).detach() / 0.7, -1)
    q = torch.softmax(data.head(data.student).detach() / 0.7, -1)
    entries = p * torch.log(p / q)
    assert metrics["divergence/masked/forward_kl_exact"] == pytest.approx(entries.sum(-1)[mask].mean().item())
    assert metrics["loss/masked"] == pytest.approx(entries.clamp(max=0.05).sum(-1)[mask].mean().item())
    assert metrics["clip_fraction/masked"] == pytest.approx((entries > 0.05).any(-1)[mask].double().mean().item())
    assert metrics["entropy/teacher"] == pytest.approx(-(p * p.log()).sum(-1).mean().item())
    assert metrics["entropy/student"] == pytest.approx(-(q * q.log()).sum(-1).mean().item())
    own = q.log().gather(-1, data.batch.ids[:, None]).squeeze(-1)
    assert metrics["logprob/student"] == pytest.approx(own.mean().item())
    ratio = (own - data.old_logprobs).exp()
    assert metrics["ratio/reward"] == pytest.approx(ratio.mean().item(), rel=1e-6)
    positive = data.advantage > 0
    clipped = (positive & (ratio > 1.2)) | (~positive & (ratio < 0.8))
    assert metrics["clip_fraction/reward"] == pytest.approx(clipped.double().mean().item())
    # ∂(−log q_y)/∂z = (q − onehot)/T for an advantage of 1 inside the clip: checked through its norm on one token.
    single: dict[str, Term] = {"imitation": CrossEntropy()}
    data.batch = replace(data.batch, mask={})
    measured = data.run(single).metrics["logit_gradient/imitation"]
    q1 = torch.softmax(data.head(data.student).detach(), -1)
    onehot = torch.nn.functional.one_hot(data.batch.ids, VOCABULARY)
    assert measured[0] / measured[1] == pytest.approx((q1 - onehot).norm(dim=-1).mean().item())


def test_metric_names_carry_the_estimator() -> None:
    data = ragged(seed=17)
    data.batch = replace(data.batch, mask={})
    terms: dict[str, Term] = {
        "a": Distill(divergence=ReverseKL()),
        "b": Distill(divergence=JSD(beta=0.25), support=TopKSupport(k=4)),
        "c": Distill(
            divergence=Renyi(order=0.95, direction="student||target"),
            support=TopKSupport(k=4, of="target", rest="renormalise"),
        ),
    }
    names = {name for name in data.run(terms).metrics if name.startswith("divergence/")}
    assert names == {
        "divergence/a/reverse_kl_exact",
        "divergence/b/jsd0.25_topk4_student_tail",
        "divergence/b/jsd0.25_topk4_student_tail_normalised",
        "divergence/c/renyi0.95_swapped_topk4_target_renormalise",
    }
    metrics = data.run(terms).metrics
    raw, normalised = (metrics[f"divergence/b/jsd0.25_topk4_student_tail{end}"][0] for end in ("", "_normalised"))
    assert normalised == pytest.approx(raw / (0.25 * 0.75))


def test_kept_token_values_sit_at_their_tokens() -> None:
    data = ragged(seed=18)
    keep = frozenset({"divergence/masked", "loss/masked", "entropy/teacher", "logprob/student"})
    mask = data.batch.mask["masked"]
    for terms in ({"masked": Distill(entry_clip=0.02)}, {"masked": Distill(entry_clip=0.02), "x": CrossEntropy()}):
        values = data.run(terms, keep=keep, chunk_tokens=4).token_values
        assert set(values) == keep and all(value.shape == mask.shape for value in values.values())
        p = torch.softmax(data.teacher_head(data.teacher).detach(), -1)
        q = torch.softmax(data.head(data.student).detach(), -1)
        entries = p * torch.log(p / q)
        everywhere = torch.ones_like(mask) if "x" in terms else mask
        for name, expected, where in (
            ("divergence/masked", entries.sum(-1), mask),
            ("loss/masked", entries.clamp(max=0.02).sum(-1), mask),
            ("entropy/teacher", -(p * p.log()).sum(-1), everywhere),
            ("logprob/student", q.log().gather(-1, data.batch.ids[:, None]).squeeze(-1), everywhere),
        ):
            torch.testing.assert_close(values[name][where], expected[where].float())
            assert values[name][~where].isnan().all()


def bad(data: Ragged, **changes: Any) -> Ragged:
    return replace(data, batch=replace(data.batch, **changes))


def test_contradictions_are_errors_that_name_the_place() -> None:
    data = ragged(seed=19)
    n = len(data.batch.ids)
    d: dict[str, Term] = {"masked": Distill()}
    with pytest.raises(ValueError, match="at least one term"):
        data.run({})
    with pytest.raises(ValueError, match="term 'masked' teaches view 'pupil'"):
        data.run({"masked": Distill(of="pupil")})
    with pytest.raises(ValueError, match="view 'coach'"):
        data.run({"masked": Distill(against="coach")})
    with pytest.raises(ValueError, match="against itself"):
        data.run({"masked": Distill(against="student")})
    with pytest.raises(ValueError, match="'masked' is a policy gradient"):
        bad(data, advantage=None).run({"masked": PolicyGradient(temperature=1.0)})
    with pytest.raises(ValueError, match=rf"mask of term 'masked' must be bool \[{n}\]"):
        bad(data, mask={"masked": torch.ones(n)}).run(d)
    with pytest.raises(ValueError, match="masks for terms that do not exist"):
        data.run({"typo": Distill()})
    with pytest.raises(ValueError, match=f"'teacher' has {n - 1} hidden states for {n}"):
        replace(data, teacher=data.teacher[1:]).run(d)
    with pytest.raises(ValueError, match="denominators lack term 'masked'"):
        data.run(d, denominators=Denominators({}, {}, 9))
    with pytest.raises(ValueError, match="count over all micro-batches"):
        data.run(d, denominators=Denominators({"masked": 1.0}, {"masked": 4.0}, 9))
    with pytest.raises(ValueError, match="'constant', which needs"):
        data.run({"masked": Distill(reduction="constant")})
    with pytest.raises(ValueError, match="no per-token values"):
        data.run(d, keep=frozenset({"divergence/typo"}))
    with pytest.raises(ValueError, match=r"Method\.terms_of"):
        data.run({"masked": Distill(temperature="sampling")})
    with pytest.raises(ValueError, match="max_new_tokens differ"):
        _ = Denominators({}, {}, 9) + Denominators({}, {}, 8)


def test_an_id_the_student_cannot_produce_is_an_error() -> None:
    logits = torch.tensor([[0.0, -torch.inf]])
    zero = torch.zeros(1, dtype=torch.long)
    batch = TokenBatch(torch.tensor([1]), zero, zero, {})
    with pytest.raises(ValueError, match="probability 0 to a response token"):
        objective({"x": CrossEntropy()}, batch, {"student": logits}, {"student": nn.Identity()}, chunk_tokens=1)
