"""The objective against the float64 reference: divergences, supports and reductions (more in ``losses``)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from tests.training.losses.comparing import compare
from tests.training.losses.ragged import ragged, without_old
from tests.training.losses.reference import ReferenceTerm

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


def label(term: ReferenceTerm) -> str:
    return f"{term.divergence}{term.parameter}{'-swapped' * term.swapped}{'-clip' * (term.clip is not None)}"


@pytest.mark.parametrize("term", DIVERGENCES, ids=label)
def test_distillation_equals_the_reference(term: ReferenceTerm) -> None:
    """In float64 for every reduction; in fp32 for one here, for the others in the slow test below."""
    for case in variants(term):
        compare(ragged(seed=1), "masked", case, 1e-10, 1e-10)
        if case.reduction == "sequence_mean":
            compare_fp32(term, case)


@pytest.mark.slow
@pytest.mark.parametrize("term", DIVERGENCES, ids=label)
def test_distillation_equals_the_reference_in_fp32_under_every_reduction(term: ReferenceTerm) -> None:
    for case in variants(term):
        if case.reduction != "sequence_mean":
            compare_fp32(term, case)


def compare_fp32(term: ReferenceTerm, case: ReferenceTerm) -> None:
    bound = 5e-5 if term.divergence == "renyi" else 1e-5
    compare(ragged(seed=2, dtype=torch.float32), "masked", case, bound, 1e-5)


@pytest.mark.parametrize("kind", ["policy_gradient", "cross_entropy"])
def test_label_terms_equal_the_reference(kind: str) -> None:
    for case in variants(ReferenceTerm(kind, clip_high=0.28)):
        compare(ragged(seed=3), "masked", case, 1e-10, 1e-10)
        compare(ragged(seed=4, dtype=torch.float32), "masked", case, 1e-5, 1e-5)
        compare(without_old(ragged(seed=5)), "masked", case, 1e-10, 1e-10)
