"""Metrics and per-token values of the objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.training.losses.ragged import VOCABULARY, ragged
from training.losses.names import estimator_name, parse_view_value, view_value
from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    FullSupport,
    GeometricMix,
    PolicyGradient,
    Renyi,
    ReverseKL,
    SampledKL,
    TopKSupport,
    TowardStudent,
    UsdSoft,
)
from training.objective import Term


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
    assert data.old_logprobs is not None
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
            torch.testing.assert_close(values[name][where], expected[where])
            assert values[name][~where].isnan().all()


def test_weights_and_load_by_the_reference() -> None:
    """USD: d, w and the load Σ w·d / N over all tokens that take part, those of weight 0 included."""
    data = ragged(seed=2, weighted=True)
    assert data.weight is not None
    mask = data.batch.mask["masked"]
    term = Distill(weighting=UsdSoft(price=0.4, sharpness=0.3))
    keep = frozenset({"weight/masked", "difficulty/masked"})
    result = data.run({"masked": term}, keep=keep, denominators=data.counts({"masked": term}))
    p, q = (
        torch.softmax(head(x).detach(), -1)
        for head, x in ((data.teacher_head, data.teacher), (data.head, data.student))
    )
    best = p.argmax(-1, keepdim=True)
    hard = (p.gather(-1, best) / q.gather(-1, best)).log().clamp(min=0).squeeze(-1)
    weight = torch.sigmoid(((p * (p / q).log()).sum(-1) - 0.4 * hard) / 0.3) * data.weight.double()
    assert (hard[mask] == 0).any() and (hard[mask] > 0).any()
    torch.testing.assert_close(result.token_values["difficulty/masked"][mask], hard[mask])
    torch.testing.assert_close(result.token_values["weight/masked"][mask], weight[mask])
    n = float(mask.sum())
    assert result.metrics["load/masked"] == pytest.approx((float((weight * hard)[mask].sum()), n), rel=1e-12)
    assert result.metrics["weight/masked"] == pytest.approx((float(weight[mask].sum()), n), rel=1e-12)


def test_load_of_a_uniform_weighting_on_request() -> None:
    data = ragged(seed=18)
    term = {"masked": Distill()}
    assert "load/masked" not in data.run(term).metrics
    asked = data.run(term, difficulty=frozenset({"masked"}), keep=frozenset({"difficulty/masked"}))
    hard = asked.token_values["difficulty/masked"][data.batch.mask["masked"]]
    assert asked.metrics["load/masked"] == pytest.approx((float(hard.sum()), len(hard)))
    assert asked.loss.item() == data.run(term).loss.item()


def test_views_and_temperatures_of_kept_values() -> None:
    """A view no term reads, and a temperature no term has, are there for the asking and change no loss."""
    data = ragged(seed=18)
    terms = {"masked": CrossEntropy()}
    keep = frozenset({"logprob/teacher", "logprob/student@0.7", "entropy/reference@1.0", "logprob/student@1.0"})
    values = data.run(terms, keep=keep).token_values
    assert set(values) == keep
    mask = data.batch.mask["masked"]
    logits = {view: head(data.hidden[view]).detach() for view, head in data.heads.items()}

    def log_prob(view: str, temperature: float) -> torch.Tensor:
        chosen = torch.log_softmax(logits[view] / temperature, -1).gather(-1, data.batch.ids[:, None])
        return chosen.squeeze(-1)[mask]

    torch.testing.assert_close(values["logprob/teacher"][mask], log_prob("teacher", 1.0))
    torch.testing.assert_close(values["logprob/student@0.7"][mask], log_prob("student", 0.7))
    torch.testing.assert_close(values["logprob/student@1.0"][mask], log_prob("student", 1.0))
    entropy = torch.distributions.Categorical(logits=logits["reference"]).entropy()
    torch.testing.assert_close(values["entropy/reference@1.0"][mask], entropy[mask])
    assert data.run(terms, keep=keep).loss.item() == data.run(terms).loss.item()


def test_forward_kl_is_kept_for_any_divergence() -> None:
    data = ragged(seed=18)
    mask = data.batch.mask["masked"]
    for support in (FullSupport(), TopKSupport(k=3)):
        terms = {"masked": Distill(divergence=ReverseKL(), support=support, entry_clip=0.05)}
        kept = data.run(terms, keep=frozenset({"forward_kl/masked"})).token_values["forward_kl/masked"]
        forward = {"masked": Distill(support=support)}
        expected = data.run(forward, keep=frozenset({"divergence/masked"})).token_values["divergence/masked"]
        torch.testing.assert_close(kept[mask], expected[mask])


def test_names_of_mixtures_and_estimates() -> None:
    """Exact, restricted, mixed and sampled divergences never share a name."""
    names = {
        Distill(mix=GeometricMix()): "forward_kl_exact_geometric0.9",
        Distill(mix=GeometricMix(order="mix_first")): "forward_kl_exact_geometric0.9",  # the same thing there
        Distill(mix=GeometricMix(share=0.8), support=TopKSupport(k=3)): "forward_kl_topk3_student_tail_geometric0.8",
        Distill(
            mix=GeometricMix(order="mix_first"), support=TopKSupport(k=3)
        ): "forward_kl_topk3_student_tail_geometric0.9_mix_first",
        Distill(mix=TowardStudent(positions="all"), divergence=Renyi(order=0.5)): "renyi0.5_exact_toward_student0.1",
        Distill(mix=TowardStudent()): "forward_kl_exact_toward_student0.1_entropy_gap",
        SampledKL(): "kl_k3",
        SampledKL(estimator="ufkl"): "kl_ufkl",
    }
    assert {term: estimator_name(term) for term in names} == names


def test_kept_names_round_trip() -> None:
    for temperature in (None, 0.7, 1 / 3):
        parsed = parse_view_value(view_value("logprob", "teacher", temperature))
        assert parsed == ("logprob", "teacher", temperature)
    assert parse_view_value("loss/x@y") is None
