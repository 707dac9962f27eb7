"""The sign of every distance: steps along the negative gradient of one term alone bring the student nearer."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from training.method import JSD, Distill, ForwardKL, Importance, Renyi, ReverseKL, SampledKL, TopKSupport
from training.objective import ObjectiveResult, TokenBatch, objective

STEPS, RATE, VOCABULARY = 20, 0.5, 7
TOLERANCE = 1e-4

TERMS: dict[str, Distill | SampledKL] = {
    "forward": Distill(divergence=ForwardKL()),
    "reverse": Distill(divergence=ReverseKL()),
    "jsd": Distill(divergence=JSD(beta=0.3)),
    "renyi": Distill(divergence=Renyi(order=0.5)),
    "swapped": Distill(divergence=Renyi(order=2.0, direction="student||target")),
    "tail": Distill(divergence=ReverseKL(), support=TopKSupport(k=3)),
    "k2": SampledKL(against="teacher", estimator="k2", temperature=1.0),
    "k3": SampledKL(
        against="teacher", estimator="k3", temperature=1.0, importance=Importance(clip=None, gradient=True)
    ),
}


def every_outcome(term: Distill | SampledKL, student: torch.Tensor, teacher: torch.Tensor) -> ObjectiveResult:
    """The objective at each of three prefixes; estimates take every id as often as it is drawn."""
    prefixes = len(student)
    if isinstance(term, Distill):
        ids, places = torch.zeros(prefixes, dtype=torch.int64), torch.arange(prefixes)
        weight = torch.full((prefixes,), 1.0 / prefixes)
    else:
        ids = torch.arange(VOCABULARY).repeat(prefixes)
        places = torch.arange(prefixes).repeat_interleave(VOCABULARY)
        weight = student.detach().softmax(-1)[places, ids] / prefixes
    batch = TokenBatch(
        ids, places, torch.zeros_like(ids), {"pull": torch.ones_like(ids, dtype=torch.bool)}, weight={"pull": weight}
    )
    heads = {"student": torch.nn.Identity(), "teacher": torch.nn.Identity()}
    hidden = {"student": student[places], "teacher": teacher[places]}
    return objective({"pull": term}, batch, hidden, heads, chunk_tokens=64)


@pytest.mark.parametrize("name", TERMS)
def test_steps_down_the_gradient_bring_the_student_nearer(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    student = torch.randn(3, VOCABULARY, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(3, VOCABULARY, generator=generator, dtype=torch.float64)

    apart = []
    for _ in range(STEPS):
        own, other = student.detach().log_softmax(-1), teacher.log_softmax(-1)
        apart.append([float((p.exp() * (p - q)).sum()) for p, q in ((own, other), (other, own))])
        (gradient,) = torch.autograd.grad(every_outcome(TERMS[name], student, teacher).loss, student)
        student = (student.detach() - RATE * gradient).requires_grad_()

    for direction in zip(*apart, strict=True):
        assert all(later <= earlier + TOLERANCE for earlier, later in pairwise(direction))
        assert direction[-1] < 0.9 * direction[0]
