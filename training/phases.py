"""One phase of an update: its batch in one or several optimiser steps, each a sum of terms over micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import torch
from torch import Tensor

from training.accounting import Account, Sums, add_sums
from training.credit.modulation import grsd, rlsd, teacher_log_ratio
from training.credit.preference import preference_loss
from training.draws import Group
from training.looking import StepViews
from training.losses.names import plain_number, target_views, temperature_of, view_value
from training.method import (
    AnyTerm,
    Distill,
    GrsdModulation,
    Method,
    PolicyGradient,
    Preference,
    TeacherLogRatio,
)
from training.objective import Denominators, TokenBatch, objective
from training.state import TrainingState
from training.statistics_pass import (
    Snapshot,
    Statistics,
    modulated,
    needed,
    snapshot,
    statistics,
    wants_old,
)
from training.streams import Stream, build_streams, micro_batch
from training.trainer import Trainer
from training.views import context_metrics


@dataclass(slots=True)
class PhaseResult:
    """What one phase of one update did."""

    streams: list[Stream]
    losses: list[float] = field(default_factory=list)
    """One an optimiser step."""
    norms: list[float] = field(default_factory=list)
    learning_rate: float | None = None


@dataclass(slots=True)
class _Phase:
    """What the steps of one phase share."""

    trainer: Trainer
    method: Method
    name: str
    terms: Mapping[str, AnyTerm]
    account: Account
    state: TrainingState
    gap: SamplerGap | None
    sums: Sums = field(default_factory=dict)

    @property
    def deferred(self) -> str | None:
        """The one term of the phase, where its Σw is known only after the pass with gradient (USD)."""
        if len(self.terms) > 1:
            return None
        ((name, term),) = self.terms.items()
        if not isinstance(term, Distill) or term.weighting.kind not in ("usd_soft", "usd_hard"):
            return None
        return name if term.normalise == "weights" and term.reduction == "token_mean" else None


@dataclass(slots=True)
class SamplerGap:
    """How far the sampler's log-probabilities are from the learner's at the same weights."""

    view: str
    temperature: float
    drawn: Sequence[Sequence[float]]
    """The sampler's, a row."""
    total: float = 0.0
    count: int = 0

    def add(self, learner: Tensor, rows: range) -> None:
        drawn = torch.tensor([value for row in self.drawn[rows.start : rows.stop] for value in row])
        differences = (learner.detach().cpu() - drawn).abs()
        used = torch.isfinite(differences)
        self.total += float(differences[used].double().sum())
        self.count += int(used.sum())


def run_phase(
    trainer: Trainer,
    method: Method,
    name: str,
    groups: Sequence[Group],
    account: Account,
    state: TrainingState,
    gap: SamplerGap | None = None,
) -> PhaseResult:
    """The optimiser steps of phase ``name`` on ``groups``, ``step_prompts`` of them at a time.

    Old log-probabilities and the log-ratios of modulations are those before the first of several steps. Metrics go to
    ``account``; ``gap`` is filled during the first step.
    """
    trainer.learner.begin_phase()
    phase = _Phase(trainer, method, name, method.phases[name].terms, account, state, gap)
    streams = build_streams(trainer, method, phase.terms, groups)
    result = PhaseResult(streams)
    size = method.batch.step_prompts or max(1, len(groups))
    steps = [range(start, min(start + size, len(groups))) for start in range(0, len(groups), size)]
    before = [_before(phase, stream) if len(steps) > 1 else None for stream in streams]
    for step in steps:
        parts = [(stream, stream.rows_of(step), old) for stream, old in zip(streams, before, strict=True)]
        _step(phase, parts, result)
        phase.gap = None
    account.add(phase.sums)
    for stream in streams:
        account.add(context_metrics(stream.views))
    return result


def _before(phase: _Phase, stream: Stream) -> Snapshot | None:
    if not wants_old(stream.terms) and not modulated(stream.terms):
        return None
    rows = range(len(stream.rows))
    views = StepViews(phase.trainer, phase.method, stream, rows, phase.account, trains=False)
    return snapshot(views, stream.token_batch(rows, phase.trainer.learner.device))


def _step(phase: _Phase, parts: Sequence[tuple[Stream, range, Snapshot | None]], result: PhaseResult) -> None:
    sums: Sums = {}
    loss = 0.0
    for stream, rows, before in parts:
        loss += _accumulate(phase, stream, rows, before, sums)
    scale = 1.0
    if phase.deferred is not None:
        weight = sums.get(f"weight/{phase.deferred}", (0.0, 0.0))[0]
        scale = 1.0 / weight if weight > 0 else 1.0
    with phase.account.timed("t_train"):
        stepped = phase.trainer.learner.step(phase.name, gradient_scale=scale)
    result.losses.append(loss)
    result.norms.append(stepped["grad_norm"])
    result.learning_rate = stepped["learning_rate"]
    add_sums(phase.sums, sums)


def _accumulate(phase: _Phase, stream: Stream, rows: range, before: Snapshot | None, sums: Sums) -> float:
    """Adds the gradient of every micro-batch of the rows; returns the loss of the stream's terms."""
    trainer, alone = phase.trainer, phase.deferred is not None
    passes = needed(stream.terms, alone=alone)
    views = StepViews(trainer, phase.method, stream, rows, phase.account, keep=passes)
    batch = stream.token_batch(rows, trainer.learner.device)
    if before is not None:
        first = sum(len(response) for response in stream.responses[: rows.start])
        before = before.part(slice(first, first + len(batch.ids)))
        batch = replace(batch, old_logprobs=before.old_logprobs or None)
    found = Statistics()
    if passes:
        batch, found = statistics(views, batch, alone=alone, with_modulation=before is None)
    batch = _with_advantages(stream, rows, batch, found, before)
    batch, preferences = _with_slopes(phase, stream, rows, batch, found)
    own = _train(phase, views, batch)
    for name in preferences:
        own[f"loss/{name}"] = preferences[name], 1.0
    add_sums(sums, own)
    losses = {name: own.get(f"loss/{name}", (0.0, 0.0)) for name in stream.terms}
    return sum(
        plain_number(stream.terms[name].coefficient, name) * top / bottom
        for name, (top, bottom) in losses.items()
        if bottom
    )


def _train(phase: _Phase, views: StepViews, batch: TokenBatch) -> Sums:
    """Forward and backward of every micro-batch; the metrics' sums."""
    trainer, stream, gap = phase.trainer, views.stream, phase.gap
    names = dict.fromkeys([stream.learns, *(view for term in stream.terms.values() for view in target_views(term))])
    counts = Denominators.of(stream.terms, batch, phase.method.sampling.max_new_tokens)
    if phase.deferred is not None:
        counts = replace(counts, weights={phase.deferred: 1.0})
    wanted = frozenset({view_value("logprob", gap.view, gap.temperature)} if _comparable(gap, stream) else ())
    sums: Sums = {}
    for part in views.parts():
        hidden, heads = views.look(part, names, grad=True)
        with phase.account.timed("t_train"):
            with trainer.learner.numerics():
                result = objective(
                    stream.terms,
                    micro_batch(batch, part),
                    hidden,
                    heads,
                    stream.learns,
                    counts,
                    chunk_tokens=trainer.compute.head_chunk_tokens,
                    keep=wanted,
                    difficulty=frozenset(phase.state.controllers.terms() & stream.terms.keys()),
                )
            if result.loss.requires_grad:
                result.loss.backward()
        add_sums(sums, result.metrics)
        for name in wanted:
            assert gap is not None
            gap.add(result.token_values[name], range(views.rows.start + part.start, views.rows.start + part.stop))
    phase.account.cost["trained_tokens"] += len(batch.ids)
    phase.account.cost["reference_tokens"] += len(batch.ids) if stream.data == "references" else 0
    return sums


def _comparable(gap: SamplerGap | None, stream: Stream) -> TypeGuard[SamplerGap]:
    """Whether the stream learns from what its own view drew, at a temperature that some term has anyway."""
    return (
        gap is not None
        and stream.data == "rollouts"
        and gap.view == stream.learns
        and gap.temperature in {temperature_of(term) for term in stream.terms.values()}
    )


def _with_advantages(
    stream: Stream, rows: range, batch: TokenBatch, found: Statistics, before: Snapshot | None
) -> TokenBatch:
    """The batch with modulated advantages and those that are log-ratios."""
    advantage = dict(batch.advantage)
    for name, term in stream.terms.items():
        if not isinstance(term, PolicyGradient):
            continue
        if isinstance(term.advantage, TeacherLogRatio):
            ratio = found.log_ratio(term, term.advantage.against)
            advantage[name] = teacher_log_ratio(term.advantage, ratio, torch.zeros_like(ratio)).to(torch.float64)
        elif term.modulation is not None:
            ratio = before.ratios[name] if before is not None else found.log_ratio(term, term.modulation.against)
            advantage[name] = _modulated(stream, name, term, rows, batch, ratio)
    return replace(batch, advantage=advantage)


def _modulated(
    stream: Stream, name: str, term: PolicyGradient, rows: range, batch: TokenBatch, ratio: Tensor
) -> Tensor:
    modulation, plain = term.modulation, batch.advantage[name]
    assert modulation is not None
    share = plain_number(modulation.share, f"modulation.share of term {name!r}")
    part = slice(rows.start, rows.stop)
    flags = torch.tensor(stream.guided[name][part], dtype=torch.bool, device=plain.device)[batch.sequence]
    if isinstance(modulation, GrsdModulation):
        groups = torch.tensor([row.group for row in stream.rows[part]], device=plain.device)[batch.sequence]
        used = batch.term_mask(name)
        return grsd(share, modulation, plain, ratio, batch.sequence, groups, flags & used)
    return torch.where(flags, rlsd(share, modulation, plain, ratio), plain)


def _with_slopes(
    phase: _Phase, stream: Stream, rows: range, batch: TokenBatch, found: Statistics
) -> tuple[TokenBatch, dict[str, float]]:
    """The batch with the slopes of preference terms, and their losses; running shifts move."""
    losses: dict[str, float] = {}
    slopes = dict(batch.slope)
    for name, term in stream.terms.items():
        if not isinstance(term, Preference):
            continue
        used = batch.term_mask(name)
        ratio = torch.where(used, -found.log_ratio(term, term.against), 0.0).to(torch.float64)
        sums = ratio.new_zeros(len(rows)).index_add_(0, batch.sequence, ratio)
        rewards = [row.reward for row in stream.rows[rows.start : rows.stop]]
        kept = torch.tensor(stream.kept[name][rows.start : rows.stop], dtype=torch.bool, device=used.device)
        found_loss = preference_loss(
            term,
            sums,
            torch.bincount(batch.sequence, minlength=len(rows)),
            torch.tensor([r is not None and r >= term.success_threshold for r in rewards], device=used.device),
            kept,
            phase.state.shifts.get(name),
        )
        losses[name] = found_loss.loss
        slopes[name] = found_loss.slope[batch.sequence].to(torch.float64)
        if found_loss.shift is not None:
            phase.state.shifts[name] = found_loss.shift
            add_sums(phase.sums, {f"shift/{name}": (found_loss.shift, 1.0)})
        if found_loss.margin is not None:
            add_sums(phase.sums, {f"margin/{name}": (found_loss.margin, 1.0)})
    return replace(batch, slope=slopes), losses
