"""What terms need to know of the whole batch before they can be computed: one pass without gradient, when asked for.

TIP's scores, the entropies that pick PAINT's positions, the log-probabilities behind modulated advantages and
preferences, the sums of USD's weights, and log π_old where one batch serves several optimiser steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from training.credit.selection import gap_positions, token_scores, top_tokens
from training.looking import StepViews
from training.losses.names import target_views, temperature_of, view_value
from training.method import AnyTerm, Distill, Entropy, PolicyGradient, Preference, TopTokens, TowardStudent, Uniform
from training.objective import Denominators, TokenBatch, objective, weigh
from training.streams import micro_batch

PROBE = "statistics"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is fixed before the first optimiser step on a batch, for every token of a stream."""

    old_logprobs: dict[float, Tensor]
    """Temperature -> log π_old."""
    ratios: dict[str, Tensor]
    """Term -> log q(y_t) − log π_old(y_t) of its modulation."""

    def part(self, tokens: slice) -> Snapshot:
        return Snapshot(
            {temperature: values[tokens] for temperature, values in self.old_logprobs.items()},
            {name: values[tokens] for name, values in self.ratios.items()},
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which values of which views the terms of a stream ask a pass for."""

    values: frozenset[str]
    views: frozenset[str]
    terms: frozenset[str]


def wants_old(terms: Mapping[str, AnyTerm]) -> set[float]:
    """The temperatures at which some term reads log π_old."""
    return {
        temperature_of(term)
        for term in terms.values()
        if isinstance(term, PolicyGradient)
        or getattr(term, "importance", None) is not None
        or getattr(term, "sampler_importance_clip", None) is not None
    }


def modulated(terms: Mapping[str, AnyTerm]) -> dict[str, PolicyGradient]:
    return {n: t for n, t in terms.items() if isinstance(t, PolicyGradient) and t.modulation is not None}


def picks_positions(term: AnyTerm) -> bool:
    return isinstance(term, Distill) and isinstance(term.mix, TowardStudent) and term.mix.positions == "entropy_gap"


def selects_tokens(term: AnyTerm) -> bool:
    return isinstance(term, Distill) and isinstance(term.weighting, TopTokens)


def measured_first(terms: Mapping[str, AnyTerm], *, alone: bool) -> dict[str, AnyTerm]:
    """The terms whose USD weights must be known before the pass with gradient.

    A token mean divides by Σw. A term that is ``alone`` in its phase takes Σw from the pass itself and scales the
    gradient afterwards; the other reductions and terms in company need a pass of their own.
    """
    return {
        name: term
        for name, term in terms.items()
        if isinstance(term, Distill)
        and term.weighting.kind in ("usd_soft", "usd_hard")
        and term.normalise == "weights"
        and not (alone and term.reduction == "token_mean")
    }


def needed(terms: Mapping[str, AnyTerm], *, alone: bool) -> bool:
    """Whether an optimiser step on these terms needs a pass without gradient first."""
    asks = bool(_asked(terms, with_modulation=True).values)
    return asks or any(map(selects_tokens, terms.values())) or bool(measured_first(terms, alone=alone))


def snapshot(views: StepViews, batch: TokenBatch) -> Snapshot:
    """log π_old and the modulations' log-ratios, by the weights as they are now."""
    terms, learns = views.stream.terms, views.stream.learns
    wanted = {view_value("logprob", learns, temperature): learns for temperature in wants_old(terms)}
    for term in modulated(terms).values():
        assert term.modulation is not None
        for view in (term.of, term.modulation.against):
            wanted[view_value("logprob", view, temperature_of(term))] = view
    values = _view_values(views, batch, frozenset(wanted), {learns, *wanted.values()}, terms)
    old = {temperature: values[view_value("logprob", learns, temperature)] for temperature in wants_old(terms)}
    return Snapshot(old, {name: _ratio(term, values) for name, term in modulated(terms).items()})


@dataclass(slots=True)
class Statistics:
    """What the pass found: values of views by name, and the batch with positions, selection and weights filled in."""

    values: dict[str, Tensor] = field(default_factory=dict)

    def log_ratio(self, term: AnyTerm, against: str) -> Tensor:
        """log p_against(y_t) − log p_of(y_t) at the term's temperature."""
        temperature = temperature_of(term)
        return (
            self.values[view_value("logprob", against, temperature)]
            - self.values[view_value("logprob", term.of, temperature)]
        )


def statistics(
    views: StepViews, batch: TokenBatch, *, alone: bool, with_modulation: bool
) -> tuple[TokenBatch, Statistics]:
    """The batch with picked positions, token selections and measured weights, and the values of views.

    ``with_modulation`` False leaves the modulations' log-ratios to a snapshot.
    """
    terms = views.stream.terms
    asked = _asked(terms, with_modulation=with_modulation)
    found = Statistics()
    if asked.values:
        named = {name: terms[name] for name in asked.terms}
        found.values = _view_values(views, batch, asked.values, {views.stream.learns, *asked.views}, named)
    for name, term in terms.items():
        if picks_positions(term):
            positions = _positions(name, term, batch, found)
            batch = replace(batch, toward_student={**batch.toward_student, name: positions})
    for name, term in terms.items():
        if selects_tokens(term):
            selected = _selected(views, name, term, batch)
            weight = selected if name not in batch.weight else batch.weight[name] * selected
            batch = replace(batch, weight={**batch.weight, name: weight})
    return _weighed(views, measured_first(terms, alone=alone), batch), found


def _asked(terms: Mapping[str, AnyTerm], *, with_modulation: bool) -> Wanted:
    values, views, names = set(), set(), set()
    for name, term in terms.items():
        what, others = "logprob", []
        if picks_positions(term):
            what, others = "entropy", [term.targets()[0]]
        elif isinstance(term, Preference | PolicyGradient) and (with_modulation or name not in modulated(terms)):
            others = list(term.targets())
        for view in [term.of, *others] if others else []:
            values.add(view_value(what, view, temperature_of(term)))
            views.add(view)
            names.add(name)
    return Wanted(frozenset(values), frozenset(views), frozenset(names))


def _view_values(
    views: StepViews, batch: TokenBatch, wanted: frozenset[str], names: Collection[str], terms: Mapping[str, AnyTerm]
) -> dict[str, Tensor]:
    """The wanted values at every token that one of ``terms`` uses, 0 elsewhere."""
    if not wanted:
        return {}
    learns = views.stream.learns
    temperature = temperature_of(next(iter(terms.values())))
    used = torch.stack([batch.term_mask(name) for name in terms]).any(dim=0)
    plain = replace(batch.only(()), mask={PROBE: used}, old_logprobs=None, sampler_logprobs=None)
    probe: dict[str, AnyTerm] = {PROBE: Entropy(of=learns, temperature=temperature)}
    order = [learns, *sorted(set(names) - {learns})]
    return _collect(views, plain, probe, order, wanted)


def _collect(
    views: StepViews,
    batch: TokenBatch,
    terms: Mapping[str, AnyTerm],
    names: Sequence[str],
    wanted: frozenset[str],
) -> dict[str, Tensor]:
    """Per-token values of ``objective`` over all micro-batches, without gradient; 0 at tokens no term uses."""
    trainer, learns = views.trainer, views.stream.learns
    parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in views.parts():
        micro = micro_batch(batch, part)
        hidden, heads = views.look(part, names, grad=False)
        with torch.no_grad(), trainer.learner.numerics(), views.account.timed("t_train"):
            values = objective(
                terms,
                micro,
                hidden,
                heads,
                learns,
                Denominators.of(terms, micro, 1),
                chunk_tokens=trainer.compute.head_chunk_tokens,
                keep=wanted,
            ).token_values
        for name in wanted:
            parts[name].append(values[name].nan_to_num(nan=0.0))
    return {name: torch.cat(values) for name, values in parts.items()}


def _ratio(term: PolicyGradient, values: Mapping[str, Tensor]) -> Tensor:
    assert term.modulation is not None
    return Statistics(dict(values)).log_ratio(term, term.modulation.against)


def _positions(name: str, term: AnyTerm, batch: TokenBatch, found: Statistics) -> Tensor:
    assert isinstance(term, Distill) and isinstance(term.mix, TowardStudent)
    temperature, used = temperature_of(term), batch.term_mask(name)
    picked = torch.zeros_like(used)
    picked[used] = gap_positions(
        found.values[view_value("entropy", term.against, temperature)][used],
        found.values[view_value("entropy", term.of, temperature)][used],
        batch.sequence[used],
        term.mix.top_share,
        term.mix.gap,
    )
    return picked


def _selected(views: StepViews, name: str, term: AnyTerm, batch: TokenBatch) -> Tensor:
    """[N] float64, 1 at the tokens that TIP keeps."""
    assert isinstance(term, Distill) and isinstance(term.weighting, TopTokens)
    plain = term.model_copy(
        update={
            "weighting": Uniform(),
            "importance": None,
            "sampler_importance_clip": None,
            "normalise": "tokens",
            "reduction": "token_mean",
        }
    )
    entropy = view_value("entropy", term.of)
    extra = {"soft_or": f"divergence/{name}", "overconfident": f"forward_kl/{name}"}.get(term.weighting.score)
    wanted = frozenset({entropy} | ({extra} if extra else set()))
    alone = replace(batch.only((name,)), weight={})
    values = _collect(views, alone, {name: plain}, [term.of, *target_views(term)], wanted)
    used = batch.term_mask(name)
    divergence = values[extra][used] if extra else None
    scores = token_scores(term.weighting, values[entropy][used], divergence, divergence)
    selected = torch.zeros_like(used, dtype=torch.float64)
    selected[used] = top_tokens(scores, batch.sequence[used], term.weighting.keep).to(torch.float64)
    return selected


def _weighed(views: StepViews, terms: Mapping[str, AnyTerm], batch: TokenBatch) -> TokenBatch:
    """``batch`` with the final weights of ``terms``."""
    if not terms:
        return batch
    part_of = batch.only(terms)
    names = list(
        dict.fromkeys([views.stream.learns, *(view for term in terms.values() for view in target_views(term))])
    )
    weights: dict[str, list[Tensor]] = {name: [] for name in terms}
    for part in views.parts():
        hidden, heads = views.look(part, names, grad=False)
        with views.trainer.learner.numerics(), views.account.timed("t_train"):
            micro = weigh(
                terms,
                micro_batch(part_of, part),
                hidden,
                heads,
                views.stream.learns,
                chunk_tokens=views.trainer.compute.head_chunk_tokens,
            )
        for name in terms:
            weights[name].append(micro.final_weight[name])
    return replace(batch, final_weight={name: torch.cat(values) for name, values in weights.items()})
