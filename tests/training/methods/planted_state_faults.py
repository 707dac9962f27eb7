"""Faults to plant into what surrounds the loss: controllers, preferences, averages, rewards, draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import training.controllers
import training.phases
import training.rows
import training.streams
from tests.training.methods import test_credit_reference as credit
from tests.training.methods.planted_faults import Patch
from tests.training.methods.stub_learner import StubLearner
from training.credit import alignment, preference
from training.learners.base import STUDENT
from training.learners.hf import HFLearner
from training.losses import term_losses
from training.method import Preference


def price_falls_under_load(patch: Patch) -> None:
    true = training.controllers.moved

    def mutant(controller: Any, values: Any, observed: Any) -> Any:
        after = true(controller, values, observed)
        return {**after, "price": max(0.0, 2 * values["price"] - after["price"])}

    patch.setattr(training.controllers, "moved", mutant)


def share_grows_under_load(patch: Patch) -> None:
    true = training.controllers.moved

    def mutant(controller: Any, values: Any, observed: Any) -> Any:
        after = true(controller, values, observed)
        return {**after, "share": min(1.0, max(controller.min_share, 2 * values["share"] - after["share"]))}

    patch.setattr(training.controllers, "moved", mutant)
    patch.setattr(credit, "moved", mutant)


def load_without_its_weights(patch: Patch) -> None:
    true = training.phases.add_sums

    def mutant(into: Any, sums: Any) -> None:
        weight = sums.get("weight/distill", (1.0, 1.0))
        mean = weight[0] / weight[1] if weight[1] else 1.0
        true(into, {n: (v[0] / mean, v[1]) if n.startswith("load/") else v for n, v in sums.items()})

    patch.setattr(training.phases, "add_sums", mutant)


def classes_swapped(patch: Patch) -> None:
    true = preference.preference_loss
    patch.setattr(
        training.phases,
        "preference_loss",
        lambda spec, ratio, lengths, passed, *rest: true(spec, ratio, lengths, ~passed, *rest),
    )


def shift_is_the_mean_of_the_rows(patch: Patch) -> None:
    true = preference.preference_loss

    def mutant(spec: Preference, ratio: Tensor, lengths: Tensor, passed: Tensor, scored: Tensor, shift: Any) -> Any:
        plain = float((spec.beta * ratio)[scored].mean())
        return true(spec.model_copy(update={"shift_rate": 1e-30}), ratio, lengths, passed, scored, plain)

    patch.setattr(training.phases, "preference_loss", mutant)


def slopes_turned_round(patch: Patch) -> None:
    true = training.phases._with_slopes

    def mutant(*given: Any) -> Any:
        batch, losses = true(*given)
        return replace(batch, slope={name: -slope for name, slope in batch.slope.items()}), losses

    patch.setattr(training.phases, "_with_slopes", mutant)


def prior_never_taken(patch: Patch) -> None:
    patch.setattr(StubLearner, "begin_phase", lambda self: None)


def rate_read_as_decay(patch: Patch) -> None:
    def mutant(self: HFLearner, update: int) -> None:
        for weights, model in self._models.items():
            if weights.kind == "ema":
                with torch.no_grad():
                    for slow, fast in zip(model.parameters(), self.student.parameters(), strict=True):
                        slow.lerp_(fast, 1 - weights.teacher_update_rate)  # type: ignore[union-attr]

    patch.setattr(HFLearner, "advance", mutant)


def similarity_with_the_end_token(patch: Patch) -> None:
    true = alignment.compared_ids
    patch.setattr(training.rows, "compared_ids", lambda a, b, special, end: true(a, b, frozenset(), end))


def unscored_rollouts_fail(patch: Patch) -> None:
    patch.setattr(training.rows, "needs_reward", lambda term: False)
    patch.setattr(training.streams, "needs_reward", lambda term: False)


def sampler_weights_dropped(patch: Patch) -> None:
    patch.setattr(term_losses, "_sampler_scale", lambda at, term, log_prob: None)


def first_tokens_not_skipped(patch: Patch) -> None:
    true = training.streams.Stream.token_batch

    def mutant(self: Any, *rest: Any) -> Any:
        terms = {n: t.model_copy(update={"skip_tokens": 0}) for n, t in self.terms.items()}
        return true(replace(self, terms=terms), *rest)

    patch.setattr(training.streams.Stream, "token_batch", mutant)


def rollouts_always_from_the_student(patch: Patch) -> None:
    true = StubLearner.sampler
    patch.setattr(StubLearner, "sampler", lambda self, weights=STUDENT: true(self))
