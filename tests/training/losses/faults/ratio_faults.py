"""Faults of importance ratios, estimators, the dual clip, entropy, labels, slopes and the metrics of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from training.losses import policy_gradient, ratios, sampled_kl, term_losses, token_losses
from training.losses.distributions import Distribution
from training.losses.entropy import EntropyLoss
from training.losses.policy_gradient import SurrogateLoss
from training.losses.ratios import ImportanceWeight
from training.losses.sampled_kl import SampledDivergence
from training.losses.term_losses import TermLoss, TermTokens

Patch = pytest.MonkeyPatch


def importance_follows_the_policy_where_it_is_detached(patch: Patch) -> None:
    _importance_gradient(patch, True)


def importance_detached_where_it_has_a_gradient(patch: Patch) -> None:
    _importance_gradient(patch, False)


def _importance_gradient(patch: Patch, gradient: bool) -> None:
    for name in ("_distill", "_sampled_kl"):
        true = getattr(term_losses, name)

        def mutant(at: TermTokens, term: Any, true: Any = true) -> TermLoss:
            spec = term.importance
            changed = None if spec is None else spec.model_copy(update={"gradient": gradient})
            return true(at, term.model_copy(update={"importance": changed}))

        patch.setattr(term_losses, name, mutant)


def clipped_importance_keeps_its_gradient(patch: Patch) -> None:
    patch.setattr(ImportanceWeight, "moves", lambda self: torch.ones_like(self.clipped))


def importance_upside_down(patch: Patch) -> None:
    true = ratios.importance_weight

    def mutant(log_prob: Tensor, old: Tensor | None, clip: float | None) -> ImportanceWeight:
        return true(log_prob, None, clip) if old is None else true(old.to(log_prob.dtype), log_prob, clip)

    patch.setattr(term_losses, "importance_weight", mutant)


def sampler_ratio_of_the_new_policy(patch: Patch) -> None:
    true = term_losses._sampler_scale

    def mutant(at: TermTokens, term: Any, log_prob: Tensor) -> Tensor | None:
        return true(replace(at, batch=replace(at.batch, old_logprobs=None)), term, log_prob)

    patch.setattr(term_losses, "_sampler_scale", mutant)


def importance_clip_from_below(patch: Patch) -> None:
    def mutant(log_prob: Tensor, old: Tensor | None, clip: float | None) -> ImportanceWeight:
        result = ratios.importance_weight(log_prob, old, None)
        low = result.ratio.clamp(min=clip) if clip is not None else result.ratio
        return result._replace(weight=low, clipped=low != result.ratio)

    patch.setattr(term_losses, "importance_weight", mutant)


def unbounded_estimates(patch: Patch) -> None:
    patch.setattr(sampled_kl, "LOG_RATIO_BOUND", 1e9)


def estimator_of_the_other_direction(patch: Patch) -> None:
    true = sampled_kl.sampled_kl

    def mutant(log_prob: Tensor, against: Tensor, estimator: Any) -> SampledDivergence:
        result = true(against, log_prob, estimator)
        return result._replace(slope=-result.slope)

    patch.setattr(term_losses, "sampled_kl", mutant)


def estimator_detached_in_its_ratio(patch: Patch) -> None:
    true = sampled_kl.sampled_kl

    def mutant(log_prob: Tensor, against: Tensor, estimator: Any) -> SampledDivergence:
        result = true(log_prob, against, estimator)
        return result._replace(slope=torch.ones_like(result.slope)) if estimator == "k3" else result

    patch.setattr(term_losses, "sampled_kl", mutant)


def fkl_for_ufkl(patch: Patch) -> None:
    true = sampled_kl.sampled_kl
    patch.setattr(term_losses, "sampled_kl", lambda lp, p, name: true(lp, p, "fkl" if name == "ufkl" else name))


def _dual(patch: Patch, change: Callable[[SurrogateLoss, Tensor, Any], SurrogateLoss]) -> None:
    true = policy_gradient.clipped_surrogate

    def mutant(log_prob: Tensor, old: Tensor | None, advantage: Tensor, low: float, high: float, dual: Any) -> Any:
        return change(true(log_prob, old, advantage, low, high, dual), advantage.to(log_prob.dtype), dual)

    patch.setattr(term_losses, "clipped_surrogate", mutant)


def dual_clip_on_good_tokens(patch: Patch) -> None:
    def change(result: SurrogateLoss, advantage: Tensor, dual: float | None) -> SurrogateLoss:
        if dual is None:
            return result
        good = (advantage > 0) & (result.ratio < 1 / dual)
        return result._replace(
            loss=torch.where(good, -advantage / dual, result.loss), slope=result.slope.masked_fill(good, 0.0)
        )

    _dual(patch, change)


def dual_clip_with_its_gradient_alive(patch: Patch) -> None:
    def change(result: SurrogateLoss, advantage: Tensor, dual: float | None) -> SurrogateLoss:
        return result._replace(slope=torch.where(result.dual_clipped > 0, -result.ratio * advantage, result.slope))

    _dual(patch, change)


def dual_clip_ignored(patch: Patch) -> None:
    true = policy_gradient.clipped_surrogate
    patch.setattr(term_losses, "clipped_surrogate", lambda lp, old, a, low, high, dual: true(lp, old, a, low, high))


def entropy_maximised_the_wrong_way(patch: Patch) -> None:
    true = term_losses.negative_entropy

    def mutant(student: Distribution) -> EntropyLoss:
        result = true(student)
        return EntropyLoss(-result.loss, -result.slope)

    patch.setattr(term_losses, "negative_entropy", mutant)


def own_ids_for_labels(patch: Patch) -> None:
    true = TermTokens.own

    def mutant(self: TermTokens, values: Any) -> Tensor | None:
        return None if values is self.batch.labels else true(self, values)

    patch.setattr(TermTokens, "own", mutant)


def slopes_with_the_wrong_sign(patch: Patch) -> None:
    true = term_losses._preference

    def mutant(at: TermTokens) -> TermLoss:
        result = true(at)
        return result._replace(gradient=lambda: -result.gradient())

    patch.setattr(term_losses, "_preference", mutant)


def load_over_weighted_tokens(patch: Patch) -> None:
    true = token_losses.TokenLosses._add_weights

    def mutant(self: Any, name: str, block: Any, weight: Tensor, difficulty: Any, tokens: Tensor) -> None:
        kept = weight > 0
        true(self, name, block, weight[kept], None if difficulty is None else difficulty[kept], tokens[kept])

    patch.setattr(token_losses.TokenLosses, "_add_weights", mutant)


def sum_of_weights_without_those_given(patch: Patch) -> None:
    true = token_losses.TokenLosses._add_weights

    def mutant(self: Any, name: str, block: Any, weight: Tensor, difficulty: Any, tokens: Tensor) -> None:
        given = block.weight[tokens]
        true(self, name, block, torch.where(given > 0, weight / given, 0.0), difficulty, tokens)

    patch.setattr(token_losses.TokenLosses, "_add_weights", mutant)


RATIO_FAULTS: list[Callable[[Patch], None]] = [
    importance_follows_the_policy_where_it_is_detached,
    importance_detached_where_it_has_a_gradient,
    clipped_importance_keeps_its_gradient,
    importance_upside_down,
    sampler_ratio_of_the_new_policy,
    importance_clip_from_below,
    unbounded_estimates,
    estimator_of_the_other_direction,
    estimator_detached_in_its_ratio,
    fkl_for_ufkl,
    dual_clip_on_good_tokens,
    dual_clip_with_its_gradient_alive,
    dual_clip_ignored,
    entropy_maximised_the_wrong_way,
    own_ids_for_labels,
    slopes_with_the_wrong_sign,
    load_over_weighted_tokens,
    sum_of_weights_without_those_given,
]
