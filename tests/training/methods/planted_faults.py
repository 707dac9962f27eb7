"""Faults to plant into the update of a method, for test_method_mutations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import training.credit.rewards
import training.looking
import training.phases
import training.rollouts
import training.rows
import training.statistics_pass
import training.streams
from training.credit import modulation, selection
from training.losses import divergences, mixtures, supports, term_losses
from training.losses.advantages import GroupAdvantages
from training.losses.distributions import Distribution
from training.token_batch import Denominators

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]
Test = Callable[[], object]


def advantage_with_the_other_sign(patch: Patch) -> None:
    true = term_losses.clipped_surrogate
    patch.setattr(term_losses, "clipped_surrogate", lambda new, old, a, *clips: true(new, old, -a, *clips))


def distance_with_the_other_sign(patch: Patch) -> None:
    true = training.rows.distances
    patch.setattr(training.rows, "distances", lambda *given: [1 - value for value in true(*given)])
    patch.setattr(training.streams, "distances", training.rows.distances)


def labels_shifted_by_one(patch: Patch) -> None:
    true = Distribution.at
    patch.setattr(Distribution, "at", lambda self, ids: true(self, ids.roll(1)))


def reference_labels_shifted_by_one(patch: Patch) -> None:
    true = training.streams._padded

    def mutant(rows: Any, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return true([row[1:] for row in rows], lengths)

    patch.setattr(training.streams, "_padded", mutant)


def all_tokens_in_usds_denominator(patch: Patch) -> None:
    true = training.phases.add_sums

    def mutant(into: Any, sums: Any) -> None:
        true(into, {n: (v[1], v[1]) if n.startswith("weight/") else v for n, v in sums.items()})

    patch.setattr(training.phases, "add_sums", mutant)


def denominators_of_weights_become_tokens(patch: Patch) -> None:
    patch.setattr(Denominators, "total", lambda self, name, term: self.tokens[name])


def gated_rows_leave_the_denominator(patch: Patch) -> None:
    patch.setattr(Denominators, "total", lambda self, name, term: self.weights.get(name, self.tokens[name]))


def every_row_counts_where_none_has_a_context(patch: Patch) -> None:
    true = Denominators.of.__func__  # type: ignore[attr-defined]

    def mutant(cls: type[Denominators], terms: Any, batch: Any, longest: int) -> Denominators:
        counts = true(cls, terms, batch, longest)
        return replace(counts, tokens={name: float(len(batch.ids)) for name in counts.tokens}, weights={})

    patch.setattr(Denominators, "of", classmethod(mutant))


def support_of_the_other_side(patch: Patch) -> None:
    true = supports.restrict

    def mutant(spec: Any, target: Distribution, student: Distribution, where: str = "") -> Any:
        if spec.kind == "top_k":
            spec = spec.model_copy(update={"of": "student" if spec.of == "target" else "target"})
        return true(spec, target, student, where)

    patch.setattr(mixtures, "restrict", mutant)


def direction_swapped(patch: Patch) -> None:
    patch.setattr(divergences, "reverse_kl", divergences.forward_kl)


def mixture_weights_swapped(patch: Patch) -> None:
    true = mixtures.geometric
    patch.setattr(mixtures, "geometric", lambda t, r, share, where="": true(t, r, 1 - share, where))


def order_of_mixing_ignored(patch: Patch) -> None:
    true = mixtures.mixed_pair

    def mutant(term: Any, *rest: Any) -> Any:
        mix = term.mix.model_copy(update={"order": "mix_first"}) if term.mix is not None else None
        return true(term.model_copy(update={"mix": mix}), *rest)

    patch.setattr(term_losses, "mixed_pair", mutant)


def gradient_through_the_importance_ratio(patch: Patch) -> None:
    true = term_losses._distill_scale

    def mutant(at: Any, term: Any, loss: Tensor) -> Any:
        importance = term.importance and term.importance.model_copy(update={"gradient": True})
        return true(at, term.model_copy(update={"importance": importance}), loss)

    patch.setattr(term_losses, "_distill_scale", mutant)


def gradient_into_the_live_teacher(patch: Patch) -> None:
    true = training.looking.StepViews.look

    def mutant(self: Any, part: range, names: Any, *, grad: bool) -> Any:
        hidden, heads = true(self, part, names, grad=grad)
        for name in hidden:
            if grad and name != self.stream.learns and self.method.views[name].weights.kind == "student":
                head: Any = heads[name].weight
                head.grad = torch.zeros_like(head) if head.grad is None else head.grad
                head.grad += hidden[name].detach().mean() * 1e-3
        return hidden, heads

    patch.setattr(training.looking.StepViews, "look", mutant)


def gate_open_at_the_mean(patch: Patch) -> None:
    true = training.rows.gated

    def mutant(gate: Any, given: Any, groups: Any) -> Any:
        closed = true(gate, given, groups)
        best = {g: max(r for r, h in zip(given, groups, strict=True) if h == g and r is not None) for g in groups}
        return [up or best[g] == 0 for up, g in zip(closed, groups, strict=True)]

    patch.setattr(training.rows, "gated", mutant)


def gate_turned_round(patch: Patch) -> None:
    true = training.rows.gated
    patch.setattr(training.rows, "gated", lambda *given: [not up for up in true(*given)])


def one_mean_for_all_groups(patch: Patch) -> None:
    true = training.rollouts.group_advantages

    def mutant(given: Tensor, group: Tensor, *rest: Any, **named: Any) -> GroupAdvantages:
        return true(given, torch.zeros_like(group), *rest, **named)

    patch.setattr(training.rollouts, "group_advantages", mutant)


def deviation_of_the_population(patch: Patch) -> None:
    true = training.rollouts.group_advantages

    def mutant(given: Tensor, *rest: Any, divide_by_std: bool, epsilon: float) -> GroupAdvantages:
        result = true(given, *rest, divide_by_std=divide_by_std, epsilon=epsilon)
        return result._replace(advantage=result.advantage * (1.5**0.5 if divide_by_std else 1.0))

    patch.setattr(training.rollouts, "group_advantages", mutant)


def old_policy_of_every_step(patch: Patch) -> None:
    """The ratio is always to the present weights."""
    patch.setattr(training.phases, "wants_old", lambda terms: set())
    patch.setattr(training.phases, "modulated", lambda terms: {})


def credit_measured_anew_at_every_step(patch: Patch) -> None:
    true = training.phases.statistics
    patch.setattr(
        training.phases,
        "statistics",
        lambda views, batch, **how: true(views, batch, **{**how, "with_modulation": True}),
    )
    true_advantages = training.phases._with_advantages

    def mutant(stream: Any, rows: range, batch: Any, found: Any, before: Any) -> Any:
        return true_advantages(stream, rows, batch, found, None)

    patch.setattr(training.phases, "_with_advantages", mutant)


def penalty_for_short_responses(patch: Patch) -> None:
    true = training.credit.rewards.overlong_penalty
    patch.setattr(training.credit.rewards, "overlong_penalty", lambda r, tokens, longest: -true(r, tokens, longest))


def truncated_rollouts_kept(patch: Patch) -> None:
    patch.setattr(training.rollouts.Rollout, "truncated", property(lambda self: False))


def dual_clip_dropped(patch: Patch) -> None:
    true = term_losses.clipped_surrogate
    patch.setattr(
        term_losses, "clipped_surrogate", lambda new, old, a, low, high, dual=None: true(new, old, a, low, high)
    )


def sign_of_the_advantage_ignored_by_rlsd(patch: Patch) -> None:
    true = modulation.rlsd
    patch.setattr(training.phases, "rlsd", lambda share, spec, a, delta: true(share, spec, a, delta * a.sign()))


def grsd_over_the_whole_batch(patch: Patch) -> None:
    true = modulation.grsd

    def mutant(share: float, spec: Any, a: Tensor, delta: Tensor, sequence: Tensor, group: Tensor, m: Tensor) -> Tensor:
        return true(share, spec, a, delta, sequence, torch.zeros_like(group), torch.ones_like(m))

    patch.setattr(training.phases, "grsd", mutant)


def grsd_by_tokens_where_turns_are_asked(patch: Patch) -> None:
    true = modulation.grsd
    patch.setattr(
        training.phases,
        "grsd",
        lambda share, spec, *rest: true(share, spec.model_copy(update={"level": "token"}), *rest),
    )


def scores_scaled_in_each_rollout(patch: Patch) -> None:
    """TIP's min-max over single rollouts instead of the batch; here: over the first tokens."""
    true = selection.min_max

    def mutant(values: Tensor) -> Tensor:
        return true(values[:4])[0] + (values - values[:4].min()) / (values[:4].max() - values[:4].min())

    patch.setattr(selection, "min_max", mutant)


def lowest_scores_kept(patch: Patch) -> None:
    true = selection.top_tokens
    patch.setattr(training.statistics_pass, "top_tokens", lambda score, *rest: true(-score, *rest))


def smallest_gaps_picked(patch: Patch) -> None:
    true = selection.gap_positions
    patch.setattr(
        training.statistics_pass,
        "gap_positions",
        lambda target, student, sequence, share, gap: ~true(target, student, sequence, share, gap),
    )
