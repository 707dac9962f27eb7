"""Planted faults: each must make at least one of a short list of checks fail, and without any all pass.

The checks are compact forms of the tests beside this file. A fault that slips through means the tests have a hole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import training.objective
from tests.training.losses.ragged import Ragged, gradient_of, product_term, ragged
from tests.training.losses.reference import ReferenceTerm
from training.losses import advantages, chunked, distributions, divergences, policy_gradient, supports, token_losses
from training.losses.distributions import Distribution
from training.losses.divergences import TokenDivergence
from training.losses.policy_gradient import SurrogateLoss
from training.losses.supports import SupportPair
from training.method import Distill
from training.objective import Denominators, Term

# --- the checks ---------------------------------------------------------------------------------------------------

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


def equals_the_reference(data: Ragged, term: ReferenceTerm) -> None:
    value, by_hidden, by_weight = data.expected("masked", term)
    terms = {"masked": product_term(term)}
    result = data.run(terms, denominators=Denominators.of(terms, data.batch, data.max_new_tokens))
    result.loss.backward()
    torch.testing.assert_close(result.loss.detach(), value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient_of(data.student), by_hidden, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(gradient_of(data.head.weight), by_weight, rtol=1e-8, atol=1e-12)
    assert data.teacher.grad is None and data.teacher_head.weight.grad is None


def check_reference() -> None:
    for term in REFERENCE_TERMS:
        equals_the_reference(ragged(seed=20), term)


def check_parts_of_a_batch() -> None:
    """The first two sequences, with the counts of all four, against the same rows of the whole."""
    data = ragged(seed=21)
    terms: dict[str, Term] = {"masked": Distill(reduction="sequence_mean"), "all": Distill(coefficient=0.5)}
    counts = Denominators.of(terms, data.batch, 9)
    data.run(terms, denominators=counts).loss.backward()
    whole = gradient_of(data.student)
    rows = data.batch.sequence < 2
    batch = replace(
        data.batch,
        ids=data.batch.ids[rows],
        sequence=data.batch.sequence[rows],
        position=data.batch.position[rows],
        mask={"masked": data.batch.mask["masked"][rows]},
    )
    part = replace(data, batch=batch, student=data.student.detach()[rows].requires_grad_(), teacher=data.teacher[rows])
    part.run(terms, denominators=counts).loss.backward()
    torch.testing.assert_close(gradient_of(part.student), whole[rows], rtol=1e-10, atol=1e-14)


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


def check_advantages() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 9.0, 0.1, 0.1, 0.1]), torch.tensor([0, 0, 0, 1, 1, 1])
    scored = torch.tensor([True, True, False, True, True, True])
    result = advantages.group_advantages(rewards, group, scored, divide_by_std=False, epsilon=0.0)
    assert result.advantage.tolist() == [0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    assert result.keep.tolist() == scored.tolist()


CHECKS: list[Callable[[], None]] = [
    check_reference,
    check_parts_of_a_batch,
    check_chunks,
    check_bf16,
    check_wild_ratio,
    check_advantages,
]

# --- the faults ---------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def flipped_sign(patch: Patch) -> None:
    true = divergences.forward_kl

    def mutant(*args: Any, **kwargs: Any) -> TokenDivergence:
        result = true(*args, **kwargs)
        return result._replace(loss=-result.loss, slope=-result.slope)

    patch.setattr(divergences, "forward_kl", mutant)


def swapped_direction(patch: Patch) -> None:
    patch.setattr(divergences, "forward_kl", divergences.reverse_kl)


def swapped_mixture_weights(patch: Patch) -> None:
    true = divergences.jsd
    patch.setattr(divergences, "jsd", lambda t, s, beta, clip=None: true(t, s, 1 - beta, clip))


def clip_after_the_sum(patch: Patch) -> None:
    def mutant(entries: Tensor, slope: Tensor, entry_clip: float | None) -> TokenDivergence:
        total = entries.sum(-1)
        if entry_clip is None:
            return TokenDivergence(total, total, slope)
        cut = total > entry_clip
        return TokenDivergence(total.clamp(max=entry_clip), total, slope.masked_fill(cut[:, None], 0), cut.long())

    patch.setattr(divergences, "_sum_entries", mutant)


def clip_with_its_gradient_alive(patch: Patch) -> None:
    def mutant(entries: Tensor, slope: Tensor, entry_clip: float | None) -> TokenDivergence:
        total = entries.sum(-1)
        capped = total if entry_clip is None else entries.clamp(max=entry_clip).sum(-1)
        return TokenDivergence(capped, total, slope)

    patch.setattr(divergences, "_sum_entries", mutant)


def temperature_on_the_student_only(patch: Patch) -> None:
    true, calls = token_losses.softmax, []

    def mutant(logits: Tensor, temperature: float = 1.0) -> Distribution:
        calls.append(temperature)
        # Views come in the order teacher, student.
        return true(logits, temperature if len(calls) % 2 == 0 else 1.0)

    patch.setattr(token_losses, "softmax", mutant)


def temperature_missing_in_the_gradient(patch: Patch) -> None:
    true = token_losses.softmax
    patch.setattr(token_losses, "softmax", lambda logits, temperature=1.0: true(logits / temperature))
    patch.setattr(token_losses, "temperature_of", lambda term: 1.0)


def support_of_the_other_side(patch: Patch) -> None:
    true = supports.restrict

    def mutant(spec: Any, target: Distribution, student: Distribution, where: str = "") -> SupportPair:
        if spec.kind == "top_k":
            spec = spec.model_copy(update={"of": "student" if spec.of == "target" else "target"})
        return true(spec, target, student, where)

    patch.setattr(token_losses, "restrict", mutant)


def tail_dropped(patch: Patch) -> None:
    true = supports.restrict

    def mutant(spec: Any, target: Distribution, student: Distribution, where: str = "") -> SupportPair:
        if spec.kind == "top_k":
            spec = spec.model_copy(update={"rest": "renormalise"})
        return true(spec, target, student, where)

    patch.setattr(token_losses, "restrict", mutant)


def tail_without_gradient(patch: Patch) -> None:
    true = supports.with_tail

    def mutant(of: Distribution, ids: Tensor) -> tuple[Distribution, Tensor]:
        result, moves = true(of, ids)
        return result, torch.zeros_like(moves)

    patch.setattr(supports, "with_tail", mutant)


def softmax_not_differentiated(patch: Patch) -> None:
    patch.setattr(SupportPair, "by_logits", lambda self, slope: slope if self.ids is None else self.whole.probs * 0)


def denominator_of_the_micro_batch(patch: Patch) -> None:
    true = training.objective.token_factors

    def mutant(reduction: Any, mask: Tensor, sequence: Tensor, *_: Any) -> Tensor:
        return true(reduction, mask, sequence, float(mask.sum()), float(sequence[mask].unique().numel()), 9)

    patch.setattr(training.objective, "token_factors", mutant)


def every_reduction_a_token_mean(patch: Patch) -> None:
    true = training.objective.token_factors
    patch.setattr(training.objective, "token_factors", lambda reduction, *rest: true("token_mean", *rest))


def all_tokens_in_the_denominator(patch: Patch) -> None:
    true = training.objective.token_factors

    def mutant(reduction: Any, mask: Tensor, sequence: Tensor, tokens: float, *rest: Any) -> Tensor:
        return true(reduction, mask, sequence, float(len(mask)), *rest)

    patch.setattr(training.objective, "token_factors", mutant)


def mask_ignored(patch: Patch) -> None:
    patch.setattr(training.objective.TokenBatch, "term_mask", lambda self, name: torch.ones_like(self.ids) == 1)


def coefficient_ignored_in_the_gradient(patch: Patch) -> None:
    true = token_losses.TokenLosses._term

    def mutant(self: Any, name: str, *rest: Any) -> Tensor | None:
        gradient = true(self, name, *rest)
        return None if gradient is None else gradient / self.terms[name].term.coefficient

    patch.setattr(token_losses.TokenLosses, "_term", mutant)


def gradient_into_the_teacher(patch: Patch) -> None:
    true = training.objective.run_head

    def mutant(hidden: dict[str, Tensor], heads: Any, *rest: Any) -> Any:
        gradients = true(hidden, heads, *rest)
        if "teacher" in hidden:
            heads["teacher"](hidden["teacher"]).sum().backward()
        return gradients

    patch.setattr(training.objective, "run_head", mutant)


def labels_shifted_by_one(patch: Patch) -> None:
    true = Distribution.at
    patch.setattr(Distribution, "at", lambda self, ids: true(self, ids.roll(1)))


def advantage_maximised_the_wrong_way(patch: Patch) -> None:
    true = token_losses.clipped_surrogate

    def mutant(log_prob: Tensor, old: Tensor | None, advantage: Tensor, *clips: float) -> SurrogateLoss:
        return true(log_prob, old, -advantage, *clips)

    patch.setattr(token_losses, "clipped_surrogate", mutant)


def clip_bounds_swapped(patch: Patch) -> None:
    true = token_losses.clipped_surrogate
    patch.setattr(token_losses, "clipped_surrogate", lambda lp, old, a, low, high: true(lp, old, a, high, low))


def old_policy_follows_the_new(patch: Patch) -> None:
    true = token_losses.clipped_surrogate
    patch.setattr(token_losses, "clipped_surrogate", lambda lp, old, *rest: true(lp, None, *rest))


def gradient_through_the_old_policy(patch: Patch) -> None:
    true = token_losses.clipped_surrogate

    def mutant(*args: Any) -> SurrogateLoss:
        return (result := true(*args))._replace(slope=torch.zeros_like(result.slope))

    patch.setattr(token_losses, "clipped_surrogate", mutant)


def unbounded_ratio(patch: Patch) -> None:
    patch.setattr(policy_gradient, "LOG_RATIO_BOUND", 1e9)


def losses_in_bf16(patch: Patch) -> None:
    def mutant(logits: Tensor, temperature: float = 1.0) -> Distribution:
        log_probs = torch.log_softmax(logits / temperature, -1)
        return Distribution(log_probs, log_probs.exp())

    patch.setattr(distributions, "softmax", mutant)


def later_chunks_forgotten(patch: Patch) -> None:
    true = chunked._run_chunk

    def mutant(start: int, *rest: Any) -> None:
        if start == 0:
            true(start, *rest)

    patch.setattr(chunked, "_run_chunk", mutant)


def head_gradient_of_the_last_chunk_only(patch: Patch) -> None:
    true = chunked.HeadGradients.add

    def mutant(self: Any, *rest: Any) -> None:
        for total in self.parameters:
            total.zero_()
        true(self, *rest)

    patch.setattr(chunked.HeadGradients, "add", mutant)


def unscored_counts_as_zero(patch: Patch) -> None:
    true = advantages.group_advantages

    def mutant(rewards: Tensor, group: Tensor, scored: Tensor, **kwargs: Any) -> Any:
        return true(torch.where(scored, rewards, 0.0), group, torch.ones_like(scored), **kwargs)

    patch.setattr(advantages, "group_advantages", mutant)


def baseline_of_the_batch(patch: Patch) -> None:
    true = advantages.group_advantages
    patch.setattr(advantages, "group_advantages", lambda r, group, s, **kw: true(r, torch.zeros_like(group), s, **kw))


FAULTS: list[Callable[[Patch], None]] = [
    flipped_sign,
    swapped_direction,
    swapped_mixture_weights,
    clip_after_the_sum,
    clip_with_its_gradient_alive,
    temperature_on_the_student_only,
    temperature_missing_in_the_gradient,
    support_of_the_other_side,
    tail_dropped,
    tail_without_gradient,
    softmax_not_differentiated,
    denominator_of_the_micro_batch,
    every_reduction_a_token_mean,
    all_tokens_in_the_denominator,
    mask_ignored,
    coefficient_ignored_in_the_gradient,
    gradient_into_the_teacher,
    labels_shifted_by_one,
    advantage_maximised_the_wrong_way,
    clip_bounds_swapped,
    old_policy_follows_the_new,
    gradient_through_the_old_policy,
    unbounded_ratio,
    losses_in_bf16,
    later_chunks_forgotten,
    head_gradient_of_the_last_chunk_only,
    unscored_counts_as_zero,
    baseline_of_the_batch,
]


def failed_checks() -> list[str]:
    failed = []
    for check in CHECKS:
        try:
            check()
        except AssertionError:
            failed.append(check.__name__)
    return failed


def test_without_a_fault_every_check_passes() -> None:
    assert failed_checks() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_fault_is_found(fault: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert failed_checks() != []
