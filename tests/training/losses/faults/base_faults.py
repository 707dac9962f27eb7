"""Faults of the divergences, the reductions, the head and the policy gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import training.objective
from training.losses import (
    advantages,
    chunked,
    distributions,
    divergences,
    mixtures,
    ratios,
    supports,
    term_losses,
    token_losses,
)
from training.losses.distributions import Distribution
from training.losses.divergences import TokenDivergence
from training.losses.policy_gradient import SurrogateLoss
from training.losses.supports import SupportPair

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
        # Views come in the order teacher, student (and a reference between them in some terms).
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

    patch.setattr(mixtures, "restrict", mutant)


def tail_dropped(patch: Patch) -> None:
    true = supports.restrict

    def mutant(spec: Any, target: Distribution, student: Distribution, where: str = "") -> SupportPair:
        if spec.kind == "top_k":
            spec = spec.model_copy(update={"rest": "renormalise"})
        return true(spec, target, student, where)

    patch.setattr(mixtures, "restrict", mutant)


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

    def mutant(reduction: Any, weight: Tensor, measure: Tensor, sequence: Tensor, *_: Any) -> Tensor:
        sequences = float(sequence[measure > 0].unique().numel())
        return true(reduction, weight, measure, sequence, float(measure.sum()), sequences, 9)

    patch.setattr(training.objective, "token_factors", mutant)


def every_reduction_a_token_mean(patch: Patch) -> None:
    true = training.objective.token_factors
    patch.setattr(training.objective, "token_factors", lambda reduction, *rest: true("token_mean", *rest))


def all_tokens_in_the_denominator(patch: Patch) -> None:
    true = training.objective.token_factors

    def mutant(reduction: Any, weight: Tensor, measure: Tensor, sequence: Tensor, *rest: Any) -> Tensor:
        return true(reduction, weight, measure, sequence, float(len(weight)), *rest[1:])

    patch.setattr(training.objective, "token_factors", mutant)


def mask_ignored(patch: Patch) -> None:
    patch.setattr(training.objective.TokenBatch, "term_mask", lambda self, name: torch.ones_like(self.ids) == 1)


def coefficient_ignored_in_the_gradient(patch: Patch) -> None:
    true = token_losses.TokenLosses._term

    def mutant(self: Any, name: str, *rest: Any) -> Tensor | None:
        gradient = true(self, name, *rest)
        return None if gradient is None else gradient / self.coefficients[name]

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
    true = term_losses.clipped_surrogate

    def mutant(log_prob: Tensor, old: Tensor | None, advantage: Tensor, *clips: Any) -> SurrogateLoss:
        return true(log_prob, old, -advantage, *clips)

    patch.setattr(term_losses, "clipped_surrogate", mutant)


def clip_bounds_swapped(patch: Patch) -> None:
    true = term_losses.clipped_surrogate
    patch.setattr(
        term_losses, "clipped_surrogate", lambda lp, old, a, low, high, dual: true(lp, old, a, high, low, dual)
    )


def old_policy_follows_the_new(patch: Patch) -> None:
    true = term_losses.clipped_surrogate
    patch.setattr(term_losses, "clipped_surrogate", lambda lp, old, *rest: true(lp, None, *rest))


def gradient_through_the_old_policy(patch: Patch) -> None:
    true = term_losses.clipped_surrogate

    def mutant(*args: Any) -> SurrogateLoss:
        return (result := true(*args))._replace(slope=torch.zeros_like(result.slope))

    patch.setattr(term_losses, "clipped_surrogate", mutant)


def unbounded_ratio(patch: Patch) -> None:
    patch.setattr(ratios, "LOG_RATIO_BOUND", 1e9)


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


BASE_FAULTS: list[Callable[[Patch], None]] = [
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
