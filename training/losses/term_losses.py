"""The loss of one term at each of its tokens in a block, and its gradient with respect to the student's logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from training.losses.cross_entropy import cross_entropy
from training.losses.distributions import IMPOSSIBLE, Distribution
from training.losses.divergences import TokenDivergence, divergence, forward_kl
from training.losses.entropy import negative_entropy
from training.losses.mixtures import mixed_pair
from training.losses.names import estimator_name, temperature_of
from training.losses.policy_gradient import clipped_surrogate
from training.losses.ratios import ImportanceWeight, importance_weight
from training.losses.records import Records
from training.losses.sampled_kl import AT_EQUALITY, sampled_kl
from training.losses.supports import SupportPair, label_by_logits
from training.losses.weights import difficulty, usd_weight
from training.method import (
    JSD,
    AnyTerm,
    CrossEntropy,
    Distill,
    Entropy,
    Importance,
    PolicyGradient,
    Preference,
    SampledKL,
    UsdHard,
    UsdSoft,
)
from training.token_batch import TokenBatch


class TermLoss(NamedTuple):
    """A term at its n tokens. What is minimised is weight · scale · loss."""

    loss: Tensor
    """[n]."""
    gradient: Callable[[], Tensor]
    """() -> [n, V]: ∂ loss/∂ scaled logits, with that of the scale where it has one (over the scale)."""
    scale: Tensor | None = None
    """[n]: importance ratios; None is 1."""
    weight: Tensor | None = None
    """[n]: the part of the weight that the forward pass gives; None is 1."""
    difficulty: Tensor | None = None
    """[n]: USD's d, where it was computed."""


@dataclass(frozen=True)
class TermTokens:
    """What a term reads at its own tokens of a block."""

    name: str
    student: Distribution
    views: Mapping[str, Distribution]
    batch: TokenBatch
    tokens: Tensor
    """[n] int64: their index in ``batch``."""
    records: Records
    measures: bool
    """Whether USD's weight is to be computed."""
    load: bool
    """Whether d is to be computed although the weight does not need it."""

    @property
    def where(self) -> str:
        return f"term {self.name!r}"

    def mean(self, metric: str, values: Tensor) -> None:
        self.records.mean(f"{metric}/{self.name}", values, self.tokens)

    def own(self, values: Mapping[str, Tensor]) -> Tensor | None:
        given = values.get(self.name)
        return None if given is None else given[self.tokens]

    def old(self, term: AnyTerm) -> Tensor | None:
        """log π_old of the sampled tokens at the term's temperature; None on-policy."""
        given = self.batch.old_logprobs
        return None if given is None else given[temperature_of(term)][self.tokens]

    def log_prob(self, labels: Tensor) -> Tensor:
        """log π of one id a token; ValueError if the student cannot produce it."""
        found = self.student.at(labels)
        if self.student.has_impossible and bool((found <= IMPOSSIBLE).any()):
            raise ValueError(f"{self.where}: the student gives probability 0 to a response token")
        return found


def term_loss(at: TermTokens, term: AnyTerm) -> TermLoss:
    """The loss of ``term``; metrics go to the records. ValueError names the term."""
    if isinstance(term, Distill):
        return _distill(at, term)
    if isinstance(term, SampledKL):
        return _sampled_kl(at, term)
    if isinstance(term, PolicyGradient):
        return _policy_gradient(at, term)
    if isinstance(term, CrossEntropy):
        return _cross_entropy(at)
    if isinstance(term, Preference):
        return _preference(at)
    assert isinstance(term, Entropy)
    result = negative_entropy(at.student)
    pair = SupportPair(at.student, at.student, at.student)
    return TermLoss(result.loss, lambda: pair.by_logits(result.slope))


def _cross_entropy(at: TermTokens) -> TermLoss:
    given = at.own(at.batch.labels)
    labels = at.batch.ids[at.tokens] if given is None else given
    result = cross_entropy(at.log_prob(labels))
    return TermLoss(result.loss, lambda: label_by_logits(result.slope, labels, at.student))


def _preference(at: TermTokens) -> TermLoss:
    labels = at.batch.ids[at.tokens]
    log_prob, given = at.log_prob(labels), at.own(at.batch.slope)
    assert given is not None
    slope = given.to(log_prob.dtype)
    return TermLoss(slope * log_prob, lambda: label_by_logits(slope, labels, at.student))


def _policy_gradient(at: TermTokens, term: PolicyGradient) -> TermLoss:
    labels = at.batch.ids[at.tokens]
    log_prob, advantage = at.log_prob(labels), at.own(at.batch.advantage)
    assert advantage is not None
    result = clipped_surrogate(log_prob, at.old(term), advantage, term.clip_low, term.clip_high, term.dual_clip)
    at.mean("clip_fraction", result.clipped)
    at.mean("ratio", result.ratio)
    at.mean("ratio_bounded", result.bounded)
    if term.dual_clip is not None:
        at.mean("dual_clip_fraction", result.dual_clipped)
    return TermLoss(
        result.loss,
        lambda: label_by_logits(result.slope, labels, at.student),
        _sampler_scale(at, term, log_prob),
    )


def _sampled_kl(at: TermTokens, term: SampledKL) -> TermLoss:
    labels = at.batch.ids[at.tokens]
    log_prob, against = at.log_prob(labels), at.views[term.against].at(labels)
    if at.views[term.against].has_impossible and bool((against <= IMPOSSIBLE).any()):
        raise ValueError(
            f"{at.where}: view {term.against!r} gives probability 0 to a response token and the student does not"
        )
    result = sampled_kl(log_prob, against, term.estimator)
    shown = result.loss - AT_EQUALITY[term.estimator]
    at.mean("ratio_bounded", result.bounded)
    _show_divergence(at, term, shown)
    importance = _importance(at, term.importance, log_prob, at.old(term))
    slope = result.slope
    if importance is not None and term.importance is not None and term.importance.gradient:
        slope = slope + torch.where(importance.moves(), result.loss, 0.0)
    return TermLoss(
        result.loss,
        lambda: label_by_logits(slope, labels, at.student),
        None if importance is None else importance.weight,
    )


def _distill(at: TermTokens, term: Distill) -> TermLoss:
    picked = at.own(at.batch.toward_student)
    pair = mixed_pair(term, at.views, at.student, picked, at.where)
    result = divergence(term.divergence, pair.target, pair.student, term.entry_clip)
    _show_distillation(at, term, pair, result)
    loss, slope = result.loss, result.slope
    if term.token_clip is not None:
        cut = loss > term.token_clip
        loss, slope = loss.clamp(max=term.token_clip), slope.masked_fill(cut[:, None], 0.0)
        at.mean("token_clip_fraction", cut)
    weight, hard = _usd(at, term, pair, result.unclipped, loss)
    scale, label_slope = _distill_scale(at, term, loss)

    def gradient() -> Tensor:
        by_logits = pair.by_logits(slope)
        if label_slope is None:
            return by_logits
        return by_logits.add_(label_by_logits(label_slope, at.batch.ids[at.tokens], at.student))

    return TermLoss(loss, gradient, scale, weight, hard)


def _show_distillation(at: TermTokens, term: Distill, pair: SupportPair, result: TokenDivergence) -> None:
    _show_divergence(at, term, result.unclipped)
    if isinstance(term.divergence, JSD):
        beta = term.divergence.beta
        normalised = result.unclipped / (beta * (1 - beta))
        at.records.mean(f"divergence/{at.name}/{estimator_name(term)}_normalised", normalised, at.tokens)
    if result.clipped_entries is not None:
        at.mean("clip_fraction", (result.clipped_entries > 0).to(torch.float32))
    if at.records.wants(f"forward_kl/{at.name}"):
        at.records.keep_values(f"forward_kl/{at.name}", forward_kl(pair.target, pair.student).loss, at.tokens)


def _show_divergence(at: TermTokens, term: Distill | SampledKL, values: Tensor) -> None:
    at.records.mean(f"divergence/{at.name}/{estimator_name(term)}", values, at.tokens)
    at.records.keep_values(f"divergence/{at.name}", values, at.tokens)


def _usd(
    at: TermTokens, term: Distill, pair: SupportPair, raw: Tensor, clipped: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """(USD's weight, d): each None where nobody needs it."""
    if not (at.measures or at.load or at.records.wants(f"difficulty/{at.name}")):
        return None, None
    hard = difficulty(pair, at.where)
    if not at.measures:
        return None, hard
    assert isinstance(term.weighting, UsdSoft | UsdHard)
    return usd_weight(term.weighting, raw if term.weighting.divergence == "raw" else clipped, hard), hard


def _distill_scale(at: TermTokens, term: Distill, loss: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(product of the importance ratios, slope by log π(y_t) that a ratio with gradient adds); None is 1 or nothing."""
    if term.importance is None and term.sampler_importance_clip is None:
        return None, None
    log_prob = at.log_prob(at.batch.ids[at.tokens])
    scale, label_slope = _sampler_scale(at, term, log_prob), None
    importance = _importance(at, term.importance, log_prob, at.old(term))
    if importance is not None:
        scale = importance.weight if scale is None else scale * importance.weight
        if term.importance is not None and term.importance.gradient:
            label_slope = torch.where(importance.moves(), loss, 0.0)
    return scale, label_slope


def _importance(
    at: TermTokens, spec: Importance | None, log_prob: Tensor, old: Tensor | None
) -> ImportanceWeight | None:
    if spec is None:
        return None
    result = importance_weight(log_prob, old, spec.clip)
    at.mean("importance", result.ratio)
    at.mean("importance_clip_fraction", result.clipped)
    at.mean("importance_bounded", result.bounded)
    return result


def _sampler_scale(at: TermTokens, term: Distill | PolicyGradient, log_prob: Tensor) -> Tensor | None:
    """min(π_old/π_sampler, clip) of the sampled tokens; on-policy π_old is the present student."""
    if term.sampler_importance_clip is None:
        return None
    assert at.batch.sampler_logprobs is not None
    old = at.old(term)
    trainer = log_prob if old is None else old.to(log_prob.dtype)
    result = importance_weight(trainer, at.batch.sampler_logprobs[at.tokens], term.sampler_importance_clip)
    at.mean("sampler_ratio", result.ratio)
    at.mean("sampler_clip_fraction", result.clipped)
    at.mean("sampler_bounded", result.bounded)
    return result.weight
