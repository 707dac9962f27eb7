"""Every part of a term against the float64 reference: value and gradient, fp64 and fp32, weighted and not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.training.losses.comparing import compare
from tests.training.losses.ragged import product_term, ragged, without_old
from tests.training.losses.reference import ESTIMATORS, ReferenceTerm, brief

MIXES = [
    ReferenceTerm("distill", mix="geometric", share=0.9),
    ReferenceTerm("distill", "reverse_kl", mix="geometric", share=0.3),
    ReferenceTerm("distill", "renyi", 0.95, mix="geometric"),
    ReferenceTerm("distill", "forward_kl", mix="geometric", mix_first=True, top_k=3, top_of="target"),
    ReferenceTerm("distill", "jsd", 0.3, mix="geometric", mix_first=True, top_k=3, rest="renormalise"),
    ReferenceTerm("distill", "renyi", 0.95, mix="geometric", top_k=3),
    ReferenceTerm("distill", "forward_kl", mix="geometric", top_k=3, top_of="target", rest="renormalise"),
    ReferenceTerm("distill", "reverse_kl", mix="geometric", top_k=4, share=0.6, clip=0.05),
    ReferenceTerm("distill", "forward_kl", mix="toward_all", share=0.4, clip=0.05),
    ReferenceTerm("distill", "jsd", 0.5, mix="toward_picked", share=0.4),
    ReferenceTerm("distill", "reverse_kl", mix="toward_picked", share=0.4, top_k=3, top_of="target"),
    ReferenceTerm("distill", "forward_kl", mix="toward_all", share=0.0),
    ReferenceTerm("distill", "forward_kl", mix="geometric", share=1.0),
    ReferenceTerm("distill", "forward_kl", mix="geometric", share=0.0, top_k=3),
]
WEIGHTS = [
    ReferenceTerm("distill", token_clip=3.0),
    ReferenceTerm("distill", "reverse_kl", token_clip=0.1, clip=0.2, top_k=3),
    ReferenceTerm("distill", "renyi", 0.9, token_clip=3.0),
    ReferenceTerm("distill", usd="soft"),
    ReferenceTerm("distill", usd="soft", price=0.0),
    ReferenceTerm("distill", usd="soft", clip=0.05, usd_of_clipped=True),
    ReferenceTerm("distill", usd="soft", clip=0.05),
    ReferenceTerm("distill", "reverse_kl", usd="hard", price=0.9, token_clip=3.0, usd_of_clipped=True),
    ReferenceTerm("distill", "jsd", 0.5, usd="hard", price=0.15, top_k=4),
    ReferenceTerm("distill", usd="soft", price=1.5, mix="geometric", top_k=4, share=0.5),
    ReferenceTerm("distill", usd="soft", price=1.5, mix="geometric", share=0.5, mix_first=True, top_k=4),
    ReferenceTerm("distill", usd="hard", price=0.9, mix="toward_picked", share=0.5),
    ReferenceTerm("distill", usd="hard", price=50.0),
]
RATIOS = [
    ReferenceTerm("distill", importance="detached"),
    ReferenceTerm("distill", importance="gradient", importance_clip=None),
    ReferenceTerm("distill", "reverse_kl", importance="gradient", top_k=3),
    ReferenceTerm("distill", "jsd", 0.5, importance="gradient", token_clip=0.4),
    ReferenceTerm("distill", sampler_clip=1.1),
    ReferenceTerm("distill", importance="detached", sampler_clip=1.1, usd="soft"),
    ReferenceTerm("policy_gradient", sampler_clip=1.1),
    ReferenceTerm("policy_gradient", dual_clip=1.2, clip_low=0.1),
    ReferenceTerm("policy_gradient", dual_clip=1.2, clip_high=0.28, sampler_clip=1.1),
    *(ReferenceTerm("sampled_kl", estimator=name) for name in ESTIMATORS),
    ReferenceTerm("sampled_kl", estimator="k3", importance="gradient", importance_clip=None),
    ReferenceTerm("sampled_kl", estimator="ufkl", importance="gradient"),
    ReferenceTerm("sampled_kl", estimator="k2", importance="detached"),
]
LABELS = [
    ReferenceTerm("cross_entropy", own_labels=True),
    ReferenceTerm("entropy"),
    ReferenceTerm("preference"),
]


def sweep(term: ReferenceTerm) -> list[ReferenceTerm]:
    temperatures = [1.0] if term.kind == "cross_entropy" else [1.0, 0.7]
    return [
        replace(term, temperature=temperature, reduction=reduction, normalise=normalise, coefficient=1.5)
        for temperature, reduction, normalise in itertools.product(
            temperatures, ["token_mean", "sequence_mean", "constant"], ["weights", "tokens"]
        )
    ]


def check(term: ReferenceTerm) -> None:
    fp32 = 5e-5 if term.divergence == "renyi" else 1e-5
    # 1/w of views that are far apart runs into the thousands, and fp32 rounding grows with it.
    spread = 0.4 if term.kind == "sampled_kl" else 1.0
    for weighted, (index, case) in itertools.product([False, True], enumerate(sweep(term))):
        compare(ragged(seed=1, weighted=weighted), "masked", case, 1e-10, 1e-10)
        if index % 5 == weighted:
            data = ragged(seed=2, weighted=weighted, spread=spread)
            compare(data.as_fp32(), "masked", case, fp32, 1e-5)


@pytest.mark.parametrize("term", MIXES, ids=brief)
def test_mixed_targets(term: ReferenceTerm) -> None:
    check(term)


@pytest.mark.parametrize("term", WEIGHTS, ids=brief)
def test_token_clips_and_usd(term: ReferenceTerm) -> None:
    check(term)


@pytest.mark.parametrize("term", RATIOS, ids=brief)
def test_importance_ratios_and_estimators(term: ReferenceTerm) -> None:
    check(term)
    for case in sweep(term)[:3]:
        compare(without_old(ragged(seed=3, weighted=True)), "masked", case, 1e-10, 1e-10)


@pytest.mark.parametrize("term", LABELS, ids=brief)
def test_labels_entropy_and_preference(term: ReferenceTerm) -> None:
    check(term)


def test_usd_where_the_student_is_surer_than_the_target() -> None:
    data = ragged(seed=2, weighted=True)
    term = ReferenceTerm("distill", usd="soft")
    values = data.run({"masked": product_term(term)}, keep=frozenset({"difficulty/masked"})).token_values
    assert (values["difficulty/masked"] == 0).any()
    for case in sweep(term):
        compare(data, "masked", case, 1e-10, 1e-10)


def test_the_cases_reach_every_branch() -> None:
    """The random batch clips and gates some tokens and not all; otherwise the comparison shows little."""
    data = ragged(seed=1)
    metrics = data.metrics(
        ReferenceTerm("distill", importance="detached", sampler_clip=1.1, token_clip=3.0, usd="hard", price=0.9)
    )
    for name in ("importance_clip_fraction", "sampler_clip_fraction", "token_clip_fraction", "weight"):
        assert 0.1 < metrics[f"{name}/masked"] < 0.9, name
    metrics = data.metrics(ReferenceTerm("policy_gradient", dual_clip=1.2, clip_low=0.1))
    assert 0 < metrics["dual_clip_fraction/masked"] < 0.5 and 0 < metrics["clip_fraction/masked"] < 0.9
