"""Random ragged batches with heads, and the same terms in the product's words and in the reference's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.training.losses import reference
from tests.training.losses.reference import ReferenceTerm, ReferenceTokens
from training.losses.names import temperature_of
from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    Entropy,
    ForwardKL,
    FullSupport,
    GeometricMix,
    Importance,
    PolicyGradient,
    Preference,
    Renyi,
    ReverseKL,
    SampledKL,
    TopKSupport,
    TowardStudent,
)
from training.objective import Denominators, ObjectiveResult, Term, TokenBatch, objective, weigh

VOCABULARY = 11
STUDENT_WIDTH, TEACHER_WIDTH, REFERENCE_WIDTH = 6, 9, 5


@dataclass
class Ragged:
    """One batch: hidden states of three views of different width, their heads, and everything a term reads."""

    batch: TokenBatch
    """Token indices and masks; what terms read beside them is added by ``for_terms``."""
    student: Tensor
    teacher: Tensor
    reference: Tensor
    head: nn.Linear
    teacher_head: nn.Linear
    reference_head: nn.Linear
    advantage: Tensor
    old_logprobs: Tensor | None
    sampler_logprobs: Tensor
    slope: Tensor
    labels: Tensor
    picked: Tensor
    weight: Tensor | None = None
    max_new_tokens: int = 9

    @property
    def hidden(self) -> dict[str, Tensor]:
        return {"student": self.student, "teacher": self.teacher, "reference": self.reference}

    @property
    def heads(self) -> dict[str, nn.Module]:
        return {"student": self.head, "teacher": self.teacher_head, "reference": self.reference_head}

    def for_terms(self, terms: Mapping[str, Term]) -> TokenBatch:
        """The batch with the values every term reads."""
        batch, old = self.batch, self.old_logprobs

        def of(kind: type, values: Tensor) -> dict[str, Tensor]:
            return {name: values for name, term in terms.items() if isinstance(term, kind)}

        labelled = [n for n, term in terms.items() if isinstance(term, CrossEntropy) and term.labels == "references"]
        return replace(
            batch,
            mask={name: mask for name, mask in batch.mask.items() if name in terms},
            weight=batch.weight if self.weight is None else dict.fromkeys(terms, self.weight),
            labels=dict.fromkeys(labelled, self.labels),
            advantage=of(PolicyGradient, self.advantage),
            slope=of(Preference, self.slope),
            toward_student=of(Distill, self.picked),
            old_logprobs=None if old is None else {temperature_of(term): old for term in terms.values()},
            sampler_logprobs=self.sampler_logprobs,
        )

    def counts(self, terms: Mapping[str, Term], batch: TokenBatch | None = None) -> Denominators:
        """The sums of this batch alone, measured weights included."""
        batch = weigh(terms, batch or self.for_terms(terms), self.hidden, self.heads, chunk_tokens=7)
        return Denominators.of(terms, batch, self.max_new_tokens)

    def run(self, terms: Mapping[str, Term], *, weighed: bool = False, **options: Any) -> ObjectiveResult:
        """The product's objective; ``weighed`` measures weights in a pass before."""
        options.setdefault("chunk_tokens", 5)
        batch = self.for_terms(terms)
        if weighed:
            batch = weigh(terms, batch, self.hidden, self.heads, chunk_tokens=options["chunk_tokens"])
        return objective(terms, batch, self.hidden, self.heads, **options)

    def metrics(self, term: ReferenceTerm) -> dict[str, float]:
        """Means of the metrics of one term named "masked"."""
        terms = {"masked": product_term(term)}
        found = self.run(terms, denominators=self.counts(terms)).metrics
        return {name: numerator / denominator for name, (numerator, denominator) in found.items() if denominator}

    def as_fp32(self) -> Ragged:
        """The same numbers with hidden states and heads in fp32."""
        views = {view: getattr(self, view).detach().float().requires_grad_() for view in self.hidden}
        heads = {"head": self.head, "teacher_head": self.teacher_head, "reference_head": self.reference_head}
        return replace(self, **views, **{name: copy.deepcopy(head).float() for name, head in heads.items()})

    def expected(self, name: str, term: ReferenceTerm) -> tuple[Tensor, Tensor, Tensor]:
        """Reference loss of one term, and its float64 gradients for the student's hidden states and head."""
        hidden = self.student.detach().double().requires_grad_()
        weight = self.head.weight.detach().double().requires_grad_()
        value = reference.loss(
            term,
            hidden @ weight.T,
            self.teacher.detach().double() @ self.teacher_head.weight.detach().double().T,
            self.reference.detach().double() @ self.reference_head.weight.detach().double().T,
            self._reference_tokens(name),
        )
        by_hidden, by_weight = torch.autograd.grad(value, [hidden, weight])
        return value.detach(), by_hidden, by_weight

    def _reference_tokens(self, name: str) -> ReferenceTokens:
        batch = self.batch
        return ReferenceTokens(
            batch.ids,
            batch.sequence,
            batch.mask.get(name, torch.ones_like(batch.ids, dtype=torch.bool)),
            torch.ones(len(batch.ids)) if self.weight is None else self.weight,
            self.advantage,
            self.slope,
            self.labels,
            self.picked,
            self.sampler_logprobs,
            self.old_logprobs,
            self.max_new_tokens,
        )

    def rows(self, index: Tensor) -> Ragged:
        """The tokens at ``index`` as a batch of their own, sequences renumbered in order."""
        batch = self.batch.take(index)
        _, sequence = torch.unique(batch.sequence, return_inverse=True)

        def taken(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[index]

        return replace(
            self,
            batch=replace(batch, sequence=sequence),
            student=self.student.detach()[index].requires_grad_(),
            teacher=self.teacher.detach()[index],
            reference=self.reference.detach()[index],
            old_logprobs=taken(self.old_logprobs),
            weight=taken(self.weight),
            **{
                name: getattr(self, name)[index]
                for name in ("advantage", "sampler_logprobs", "slope", "labels", "picked")
            },
        )


def ragged(
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    lengths: tuple[int, ...] = (4, 1, 7, 3),
    *,
    weighted: bool = False,
    spread: float = 1.0,
) -> Ragged:
    """A batch of sequences of these lengths; about a third of the tokens are masked for term "masked".

    ``spread`` scales all logits: the smaller, the closer the views are to each other.
    ``weighted`` gives every term weights, about a quarter of them 0, and all of sequence 1.
    """
    generator = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = torch.rand(n, generator=generator) > 0.35
    mask[0] = True

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def head_of(width: int, spread: float) -> nn.Linear:
        head = nn.Linear(width, VOCABULARY, bias=False)
        head.weight = nn.Parameter(normal(VOCABULARY, width).mul(spread).to(dtype))
        return head

    head, teacher_head = head_of(STUDENT_WIDTH, 1.0), head_of(TEACHER_WIDTH, 0.7)
    ids = torch.randint(VOCABULARY, (n,), generator=generator)
    student = normal(n, STUDENT_WIDTH).mul(spread).to(dtype)
    own = torch.log_softmax(student.double() @ head.weight.detach().double().T, dim=-1)
    old = own.gather(-1, ids[:, None]).squeeze(-1) + 0.4 * normal(n)
    advantage, teacher = normal(n).float(), normal(n, TEACHER_WIDTH).mul(spread).to(dtype)
    given = torch.rand(n, generator=generator)
    given = torch.where((given < 0.25) | (sequence == 1), 0.0, given)
    return Ragged(
        batch=TokenBatch(
            ids=ids,
            sequence=sequence,
            position=torch.cat([torch.arange(length) for length in lengths]),
            mask={"masked": mask},
        ),
        student=student.requires_grad_(),
        teacher=teacher.requires_grad_(),
        reference=normal(n, REFERENCE_WIDTH).mul(spread).to(dtype).requires_grad_(),
        head=head,
        teacher_head=teacher_head,
        reference_head=head_of(REFERENCE_WIDTH, 0.8),
        advantage=advantage,
        old_logprobs=old.float(),
        sampler_logprobs=(old + 0.3 * normal(n)).float(),
        slope=normal(n).float(),
        labels=torch.randint(VOCABULARY, (n,), generator=generator),
        picked=torch.rand(n, generator=generator) > 0.5,
        weight=given if weighted else None,
    )


def gradient_of(tensor: Tensor) -> Tensor:
    """A copy of ``tensor.grad``, which is then cleared."""
    assert tensor.grad is not None
    gradient = tensor.grad.clone()
    tensor.grad = None
    return gradient


def product_term(term: ReferenceTerm) -> Term:
    """The product's spec of a reference term."""
    shared: dict[str, Any] = {"coefficient": term.coefficient, "temperature": term.temperature, "of": "student"}
    if term.kind == "preference":
        return Preference(**shared)
    shared |= {"reduction": term.reduction, "normalise": term.normalise}
    if term.kind == "entropy":
        return Entropy(**shared)
    if term.kind == "cross_entropy":
        del shared["temperature"]
        own: dict[str, Any] = {"data": "rollouts", "labels": "references"} if term.own_labels else {}
        return CrossEntropy(**own, **shared)
    if term.kind == "policy_gradient":
        return PolicyGradient(
            clip_low=term.clip_low,
            clip_high=term.clip_high,
            dual_clip=term.dual_clip,
            sampler_importance_clip=term.sampler_clip,
            **shared,
        )
    importance = Importance(clip=term.importance_clip, gradient=term.importance == "gradient")
    shared["importance"] = None if term.importance is None else importance
    if term.kind == "sampled_kl":
        kind: Any = term.estimator
        return SampledKL(against="teacher", estimator=kind, **shared)
    return _distill(term, shared)


def _distill(term: ReferenceTerm, shared: dict[str, Any]) -> Distill:
    divergences = {
        "forward_kl": lambda: ForwardKL(),
        "reverse_kl": lambda: ReverseKL(),
        "jsd": lambda: JSD(beta=term.parameter),
        "renyi": lambda: Renyi(
            order=term.parameter, direction="student||target" if term.swapped else "target||student"
        ),
    }
    mixes = {
        None: lambda: None,
        "geometric": lambda: GeometricMix(share=term.share, order="mix_first" if term.mix_first else "support_first"),
        "toward_all": lambda: TowardStudent(share=term.share, positions="all"),
        "toward_picked": lambda: TowardStudent(share=term.share),
    }
    of_clipped: Any = {"price": term.price, "divergence": "clipped" if term.usd_of_clipped else "raw"}
    usd: dict[str | None, dict[str, Any]] = {
        None: {},
        "soft": {"weighting": {"kind": "usd_soft", "sharpness": term.sharpness, **of_clipped}},
        "hard": {"weighting": {"kind": "usd_hard", **of_clipped}},
    }
    top: dict[str, Any] = {"k": term.top_k, "of": term.top_of, "rest": term.rest}
    return Distill(
        divergence=divergences[term.divergence](),
        support=FullSupport() if term.top_k is None else TopKSupport(**top),
        mix=mixes[term.mix](),
        entry_clip=term.clip,
        token_clip=term.token_clip,
        sampler_importance_clip=term.sampler_clip,
        **usd[term.usd],
        **shared,
    )


def without_old(data: Ragged) -> Ragged:
    return replace(data, old_logprobs=None)
