"""Faults of mixtures, of weights and of the sums they are divided by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import training.objective
import training.token_batch
from training.losses import mixtures, term_losses, token_losses, weights
from training.losses.distributions import Distribution, softmax
from training.losses.term_losses import TermLoss, TermTokens
from training.objective import Denominators, TokenBatch

Patch = pytest.MonkeyPatch


def mixture_shares_swapped(patch: Patch) -> None:
    true = mixtures.geometric
    patch.setattr(mixtures, "geometric", lambda p, r, share, where="": true(r, p, share, where))


def mixture_of_probabilities(patch: Patch) -> None:
    def mutant(p: Distribution, r: Distribution, share: Any, where: str = "") -> Distribution:
        return softmax(torch.lerp(r.probs, p.probs, share).log())

    patch.setattr(mixtures, "geometric", mutant)


def mixture_not_normalised(patch: Patch) -> None:
    def mutant(p: Distribution, r: Distribution, share: Any, where: str = "") -> Distribution:
        log_probs = torch.lerp(r.log_probs, p.log_probs, share)
        return Distribution(log_probs, log_probs.exp())

    patch.setattr(mixtures, "geometric", mutant)


def _with_order(patch: Patch, order: str) -> None:
    true = mixtures.mixed_pair

    def mutant(term: Any, *rest: Any) -> Any:
        if term.mix is not None and term.mix.kind == "geometric":
            term = term.model_copy(update={"mix": term.mix.model_copy(update={"order": order})})
        return true(term, *rest)

    patch.setattr(term_losses, "mixed_pair", mutant)


def mixture_always_first(patch: Patch) -> None:
    _with_order(patch, "mix_first")


def mixture_always_on_the_support(patch: Patch) -> None:
    _with_order(patch, "support_first")


def reference_on_its_own_ids(patch: Patch) -> None:
    true = mixtures.on_support
    patch.setattr(
        mixtures, "on_support", lambda of, ids, spec: true(of, of.log_probs.topk(ids.shape[-1]).indices, spec)
    )


def every_position_toward_the_student(patch: Patch) -> None:
    true = mixtures._toward_student
    patch.setattr(mixtures, "_toward_student", lambda mix, p, q, picked, where: true(mix, p, q, None, where))


def the_other_positions_toward_the_student(patch: Patch) -> None:
    true = mixtures._toward_student
    patch.setattr(
        mixtures,
        "_toward_student",
        lambda mix, p, q, picked, where: true(mix, p, q, None if picked is None else ~picked, where),
    )


def usd_price_with_the_wrong_sign(patch: Patch) -> None:
    true = weights.usd_weight
    patch.setattr(term_losses, "usd_weight", lambda spec, g, d: true(spec, g, -d))


def usd_soft_without_its_sharpness(patch: Patch) -> None:
    true = weights.usd_weight

    def mutant(spec: Any, g: Tensor, d: Tensor) -> Tensor:
        return true(spec.model_copy(update={"sharpness": 1.0}) if spec.kind == "usd_soft" else spec, g, d)

    patch.setattr(term_losses, "usd_weight", mutant)


def usd_hard_the_wrong_way(patch: Patch) -> None:
    true = weights.usd_weight
    patch.setattr(
        term_losses,
        "usd_weight",
        lambda spec, g, d: 1 - true(spec, g, d) if spec.kind == "usd_hard" else true(spec, g, d),
    )


def usd_weighs_by_the_clipped_divergence(patch: Patch) -> None:
    true = term_losses._usd
    patch.setattr(term_losses, "_usd", lambda at, term, pair, raw, clipped: true(at, term, pair, clipped, clipped))


def difficulty_at_the_students_likeliest_id(patch: Patch) -> None:
    true = weights._over_ids

    def mutant(pair: Any) -> tuple[Distribution, Distribution]:
        target, student = true(pair)
        # Only where the largest probability sits is looked at: move the target's there.
        best = student.log_probs.argmax(-1, keepdim=True)
        moved = torch.full_like(target.log_probs, -1e3).scatter(-1, best, target.log_probs.gather(-1, best))
        return Distribution(moved, moved.exp()), student

    patch.setattr(weights, "_over_ids", mutant)


def difficulty_may_be_negative(patch: Patch) -> None:
    def mutant(pair: Any, where: str) -> Tensor:
        target, student = weights._over_ids(pair)
        best = target.log_probs.argmax(-1)
        return target.at(best) - student.at(best)

    patch.setattr(term_losses, "difficulty", mutant)


def token_clip_with_its_gradient_alive(patch: Patch) -> None:
    true = term_losses._distill

    def mutant(at: TermTokens, term: Any) -> TermLoss:
        free = true(at, term.model_copy(update={"token_clip": None}))
        return true(at, term)._replace(gradient=free.gradient)

    patch.setattr(term_losses, "_distill", mutant)


def token_clip_ignored(patch: Patch) -> None:
    true = term_losses._distill
    patch.setattr(term_losses, "_distill", lambda at, term: true(at, term.model_copy(update={"token_clip": None})))


def weight_missing_in_the_gradient(patch: Patch) -> None:
    true = token_losses.term_loss

    def mutant(at: TermTokens, term: Any) -> TermLoss:
        result = true(at, term)
        if result.weight is None:
            return result
        weight = result.weight
        return result._replace(gradient=lambda: result.gradient() / weight.clamp(min=1e-3)[:, None])

    patch.setattr(token_losses, "term_loss", mutant)


def scale_missing_in_the_gradient(patch: Patch) -> None:
    true = token_losses.term_loss

    def mutant(at: TermTokens, term: Any) -> TermLoss:
        result = true(at, term)
        if result.scale is None:
            return result
        scale = result.scale
        return result._replace(gradient=lambda: result.gradient() / scale[:, None])

    patch.setattr(token_losses, "term_loss", mutant)


def weights_ignored(patch: Patch) -> None:
    patch.setattr(TokenBatch, "term_weight", lambda self, name: self.term_mask(name).double())


def weights_squared_in_the_denominator(patch: Patch) -> None:
    true = training.objective.token_factors

    def mutant(reduction: Any, weight: Tensor, measure: Tensor, *rest: Any) -> Tensor:
        return true(reduction, weight, measure.square(), *rest)

    patch.setattr(training.objective, "token_factors", mutant)


def _always(patch: Patch, normalise: str) -> None:
    for name in ("total", "counted_sequences"):
        true = getattr(Denominators, name)

        def mutant(self: Any, key: str, term: Any, true: Any = true) -> float:
            changed = term.model_copy(update={"normalise": normalise}) if hasattr(term, "normalise") else term
            return true(self, key, changed)

        patch.setattr(Denominators, name, mutant)


def tokens_counted_where_weights_are_asked_for(patch: Patch) -> None:
    _always(patch, "tokens")


def weights_counted_where_tokens_are_asked_for(patch: Patch) -> None:
    _always(patch, "weights")


def sequences_of_weight_zero_counted(patch: Patch) -> None:
    true = Denominators.of.__func__  # pyrefly: ignore[missing-attribute]

    def mutant(cls: Any, *rest: Any) -> Denominators:
        counts = true(cls, *rest)
        return replace(counts, weighted_sequences=counts.sequences)

    patch.setattr(Denominators, "of", classmethod(mutant))


def weights_of_one_part_lost_in_the_sum(patch: Patch) -> None:
    true = training.token_batch.Denominators.__add__
    patch.setattr(Denominators, "__add__", lambda self, other: replace(true(self, other), weights=dict(self.weights)))


WEIGHT_FAULTS: list[Callable[[Patch], None]] = [
    mixture_shares_swapped,
    mixture_of_probabilities,
    mixture_not_normalised,
    mixture_always_first,
    mixture_always_on_the_support,
    reference_on_its_own_ids,
    every_position_toward_the_student,
    the_other_positions_toward_the_student,
    usd_price_with_the_wrong_sign,
    usd_soft_without_its_sharpness,
    usd_hard_the_wrong_way,
    usd_weighs_by_the_clipped_divergence,
    difficulty_at_the_students_likeliest_id,
    difficulty_may_be_negative,
    token_clip_with_its_gradient_alive,
    token_clip_ignored,
    weight_missing_in_the_gradient,
    scale_missing_in_the_gradient,
    weights_ignored,
    weights_squared_in_the_denominator,
    tokens_counted_where_weights_are_asked_for,
    weights_counted_where_tokens_are_asked_for,
    sequences_of_weight_zero_counted,
    weights_of_one_part_lost_in_the_sum,
]
