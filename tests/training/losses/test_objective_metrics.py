"""Metrics and per-token values of the objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.training.losses.ragged import VOCABULARY, ragged
from training.method import JSD, CrossEntropy, Distill, PolicyGradient, Renyi, ReverseKL, TopKSupport
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
