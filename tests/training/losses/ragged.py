"""Random ragged batches with heads, and the same terms in the product's words and in the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.training.losses import reference
from tests.training.losses.reference import ReferenceTerm
from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    ForwardKL,
    FullSupport,
    PolicyGradient,
    Renyi,
    ReverseKL,
    TopKSupport,
)
from training.objective import ObjectiveResult, Term, TokenBatch, objective

VOCABULARY = 11
STUDENT_WIDTH, TEACHER_WIDTH = 6, 9


@dataclass
class Ragged:
    """One batch: hidden states of a student and of a wider teacher, their heads, and everything a term reads."""

    batch: TokenBatch
    student: Tensor
    teacher: Tensor
    head: nn.Linear
    teacher_head: nn.Linear
    max_new_tokens: int = 9

    @property
    def advantage(self) -> Tensor:
        assert self.batch.advantage is not None
        return self.batch.advantage

    @property
    def old_logprobs(self) -> Tensor:
        assert self.batch.old_logprobs is not None
        return self.batch.old_logprobs

    def run(self, terms: Mapping[str, Term], **options: Any) -> ObjectiveResult:
        options.setdefault("chunk_tokens", 5)
        return objective(
            terms,
            self.batch,
            {"student": self.student, "teacher": self.teacher},
            {"student": self.head, "teacher": self.teacher_head},
            **options,
        )

    def expected(self, name: str, term: ReferenceTerm) -> tuple[Tensor, Tensor, Tensor]:
        """Reference loss of one term, and its float64 gradients for the student's hidden states and head."""
        hidden = self.student.detach().double().requires_grad_()
        weight = self.head.weight.detach().double().requires_grad_()
        batch = self.batch
        advantage = torch.zeros(len(batch.ids)) if batch.advantage is None else batch.advantage
        value = reference.loss(
            term,
            hidden @ weight.T,
            self.teacher.detach().double() @ self.teacher_head.weight.detach().double().T,
            batch.ids,
            batch.sequence,
            batch.mask.get(name, torch.ones_like(batch.ids, dtype=torch.bool)),
            advantage,
            batch.old_logprobs,
            self.max_new_tokens,
        )
        by_hidden, by_weight = torch.autograd.grad(value, [hidden, weight])
        return value.detach(), by_hidden, by_weight


def ragged(seed: int = 0, dtype: torch.dtype = torch.float64, lengths: tuple[int, ...] = (4, 1, 7, 3)) -> Ragged:
    """A batch of sequences of these lengths; about a third of the tokens are masked for term "masked"."""
    generator = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = torch.rand(n, generator=generator) > 0.35
    mask[0] = True

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    head = nn.Linear(STUDENT_WIDTH, VOCABULARY, bias=False)
    teacher_head = nn.Linear(TEACHER_WIDTH, VOCABULARY, bias=False)
    head.weight = nn.Parameter(normal(VOCABULARY, STUDENT_WIDTH).to(dtype))
    teacher_head.weight = nn.Parameter(normal(VOCABULARY, TEACHER_WIDTH).mul(0.7).to(dtype))
    ids = torch.randint(VOCABULARY, (n,), generator=generator)
    student = normal(n, STUDENT_WIDTH).to(dtype)
    own = torch.log_softmax(student.double() @ head.weight.detach().double().T, dim=-1)
    old = own.gather(-1, ids[:, None]).squeeze(-1) + 0.4 * normal(n)
    return Ragged(
        TokenBatch(
            ids=ids,
            sequence=sequence,
            position=torch.cat([torch.arange(length) for length in lengths]),
            mask={"masked": mask},
            advantage=normal(n).float(),
            old_logprobs=old.float(),
        ),
        student.requires_grad_(),
        normal(n, TEACHER_WIDTH).to(dtype).requires_grad_(),
        head,
        teacher_head,
    )


def gradient_of(tensor: Tensor) -> Tensor:
    """A copy of ``tensor.grad``, which is then cleared."""
    assert tensor.grad is not None
    gradient = tensor.grad.clone()
    tensor.grad = None
    return gradient


def product_term(term: ReferenceTerm) -> Term:
    """The product's spec of a reference term."""
    shared: dict[str, Any] = {"reduction": term.reduction, "coefficient": term.coefficient}
    if term.kind == "cross_entropy":
        return CrossEntropy(**shared)
    if term.kind == "policy_gradient":
        return PolicyGradient(temperature=term.temperature, clip_low=term.clip_low, clip_high=term.clip_high, **shared)
    divergences = {
        "forward_kl": lambda: ForwardKL(),
        "reverse_kl": lambda: ReverseKL(),
        "jsd": lambda: JSD(beta=term.parameter),
        "renyi": lambda: Renyi(
            order=term.parameter, direction="student||target" if term.swapped else "target||student"
        ),
    }
    top: dict[str, Any] = {"k": term.top_k, "of": term.top_of, "rest": term.rest}
    support = FullSupport() if term.top_k is None else TopKSupport(**top)
    return Distill(
        divergence=divergences[term.divergence](),
        support=support,
        entry_clip=term.clip,
        temperature=term.temperature,
        **shared,
    )


def without_old(data: Ragged) -> Ragged:
    return replace(data, batch=replace(data.batch, old_logprobs=None))
