"""Compact forms of the tests of the objective: each raises AssertionError if something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from tests.training.losses.every_part import MIXED
from tests.training.losses.ragged import Ragged, gradient_of, product_term, ragged
from tests.training.losses.reference import ReferenceTerm
from training.losses import advantages, distributions, divergences, policy_gradient, ratios, sampled_kl
from training.method import Distill
from training.objective import Term

REFERENCE_TERMS = [
    ReferenceTerm("distill", "forward_kl", temperature=0.7),
    ReferenceTerm("distill", "reverse_kl", reduction="sequence_mean", coefficient=2.0),
    ReferenceTerm("distill", "jsd", 0.2, clip=0.03),
    ReferenceTerm("distill", "renyi", 0.8),
    ReferenceTerm("distill", "forward_kl", top_k=3, top_of="target"),
    ReferenceTerm("distill", "reverse_kl", top_k=3, rest="renormalise"),
    ReferenceTerm("policy_gradient", clip_high=0.28, reduction="constant"),
    ReferenceTerm("cross_entropy"),
]
"""On a batch without weights."""

WEIGHTED_TERMS = [
    ReferenceTerm("distill", reduction="sequence_mean"),
    ReferenceTerm("distill", normalise="tokens", token_clip=3.0),
    ReferenceTerm("distill", "jsd", 0.5, reduction="sequence_mean", normalise="tokens"),
    ReferenceTerm("distill", reduction="constant"),
    ReferenceTerm("distill", usd="soft", clip=0.05),
    ReferenceTerm("distill", usd="hard", price=0.9, mix="toward_picked", share=0.4),
    ReferenceTerm("distill", "renyi", 0.95, mix="geometric", top_k=3, share=0.8),
    ReferenceTerm("distill", mix="geometric", mix_first=True, top_k=3, share=0.8),
    ReferenceTerm("distill", importance="detached", temperature=0.7),
    ReferenceTerm("distill", "reverse_kl", importance="gradient", sampler_clip=1.1),
    *(ReferenceTerm("sampled_kl", estimator=name) for name in ("k1", "k2", "k3", "ufkl", "rkl", "fkl")),
    ReferenceTerm("sampled_kl", importance="gradient", importance_clip=None),
    ReferenceTerm("policy_gradient", dual_clip=1.2, clip_low=0.1, sampler_clip=1.1),
    ReferenceTerm("cross_entropy", own_labels=True),
    ReferenceTerm("entropy", temperature=0.7),
    ReferenceTerm("preference"),
]
"""On a batch with weights, some of them 0."""


def equals_the_reference(data: Ragged, term: ReferenceTerm) -> None:
    value, by_hidden, by_weight = data.expected("masked", term)
    terms = {"masked": product_term(term)}
    result = data.run(terms, weighed=True, denominators=data.counts(terms))
    result.loss.backward()
    torch.testing.assert_close(result.loss.detach(), value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient_of(data.student), by_hidden, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(gradient_of(data.head.weight), by_weight, rtol=1e-8, atol=1e-12)
    for other in (data.teacher, data.reference, data.teacher_head.weight, data.reference_head.weight):
        assert other.grad is None


def check_reference() -> None:
    for term in REFERENCE_TERMS:
        equals_the_reference(ragged(seed=20), term)


def check_weighted_reference() -> None:
    for term in WEIGHTED_TERMS:
        equals_the_reference(ragged(seed=1, weighted=True), term)
    # Here the student is surer than the target at some of the target's likeliest ids.
    equals_the_reference(ragged(seed=2, weighted=True), ReferenceTerm("distill", usd="soft"))


def check_parts_of_a_batch() -> None:
    """The first two sequences, with the counts of all four, against the same rows of the whole."""
    for weighted in (False, True):
        data = ragged(seed=21, weighted=weighted)
        counts = data.counts(MIXED)
        data.run(MIXED, denominators=counts).loss.backward()
        whole = gradient_of(data.student)
        rows = (data.batch.sequence < 2).nonzero().squeeze(-1)
        part = data.rows(rows)
        part.run(MIXED, denominators=counts).loss.backward()
        torch.testing.assert_close(gradient_of(part.student), whole[rows], rtol=1e-10, atol=1e-14)


def check_counts() -> None:
    """The sums of two parts add up to those of the whole; weights by hand."""
    data = ragged(seed=21, weighted=True)
    terms: dict[str, Term] = {"masked": Distill()}
    rows = data.batch.sequence < 2
    first, second = (data.rows(part.nonzero().squeeze(-1)).counts(terms) for part in (rows, ~rows))
    assert data.weight is not None
    weight = torch.where(data.batch.mask["masked"], data.weight, 0.0).double()
    total = first + second
    assert abs(total.weights["masked"] - float(weight.sum())) < 1e-9
    assert total.weighted_sequences["masked"] == len(data.batch.sequence[weight > 0].unique())


def check_chunks() -> None:
    data = ragged(seed=22)
    results = []
    for chunk_tokens in (2, 100):
        data.run({"masked": Distill()}, chunk_tokens=chunk_tokens).loss.backward()
        results.append((gradient_of(data.student), gradient_of(data.head.weight)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-14)


def check_bf16() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 2000, generator=generator)
    near = (logits + 1e-3 * torch.randn(20, 2000, generator=generator)).bfloat16()
    target, student = distributions.softmax(logits.bfloat16()), distributions.softmax(near)
    assert divergences.reverse_kl(target, student).loss.min() >= -1e-6


def check_wild_ratio() -> None:
    old = torch.tensor([-150.0, -1.0])
    result = policy_gradient.clipped_surrogate(torch.tensor([-0.5, -150.0]), old, -torch.ones(2), 0.2, 0.2)
    assert torch.isfinite(result.loss).all() and result.bounded.sum() == 2


def check_wild_estimates() -> None:
    log_ratio = torch.tensor([-150.0, 150.0])
    for estimator in ("k3", "ufkl", "fkl"):
        result = sampled_kl.sampled_kl(log_ratio, torch.zeros(2), estimator)
        assert torch.isfinite(result.loss).all() and (result.slope * log_ratio >= 0).all() and result.bounded.all()
    weight = ratios.importance_weight(log_ratio, torch.zeros(2), 2.0)
    assert torch.isfinite(weight.ratio).all() and weight.bounded.all() and not weight.moves().any()


def check_one_division_at_the_step() -> None:
    """The sum that a caller divides by is Σw over the tokens that take part, and the gradient is then the true one."""
    data = ragged(seed=9, weighted=True)
    terms = {"soft": MIXED["soft"]}
    counts = data.counts(terms)
    data.run(terms, weighed=True, denominators=counts).loss.backward()
    expected_gradient = gradient_of(data.student)
    at_once = data.run(terms, denominators=replace(counts, weights={"soft": 1.0}))
    at_once.loss.backward()
    metrics = at_once.metrics
    torch.testing.assert_close(gradient_of(data.student) / metrics["weight/soft"][0], expected_gradient)
    assert abs(metrics["weight/soft"][0] - counts.weights["soft"]) < 1e-9
    assert metrics["weight/soft"][1] == counts.tokens["soft"]
    assert abs(metrics["loss/soft"][1] - counts.weights["soft"]) < 1e-9
    load = data.run(terms, denominators=counts, keep=frozenset({"weight/soft", "difficulty/soft"}))
    expected = float((load.token_values["weight/soft"] * load.token_values["difficulty/soft"]).sum())
    assert abs(load.metrics["load/soft"][0] - expected) < 1e-9 and load.metrics["load/soft"][1] == counts.tokens["soft"]


def check_advantages() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 9.0, 0.1, 0.1, 0.1]), torch.tensor([0, 0, 0, 1, 1, 1])
    scored = torch.tensor([True, True, False, True, True, True])
    result = advantages.group_advantages(rewards, group, scored, divide_by_std=False, epsilon=0.0)
    assert result.advantage.tolist() == [0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    assert result.keep.tolist() == scored.tolist()


CHECKS: list[Callable[[], None]] = [
    check_reference,
    check_weighted_reference,
    check_parts_of_a_batch,
    check_counts,
    check_chunks,
    check_bf16,
    check_wild_ratio,
    check_wild_estimates,
    check_one_division_at_the_step,
    check_advantages,
]


def failed_checks(*, first: bool = False) -> list[str]:
    """Names of the checks that fail; with ``first`` it stops at the first of them."""
    failed = []
    for check in CHECKS:
        try:
            check()
        except AssertionError:
            failed.append(check.__name__)
            if first:
                break
    return failed
