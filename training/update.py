"""One update: problems → rollouts → grades → contexts → the phases that are due → averages and controllers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.problems import Problem
from training.accounting import TIMES, Account
from training.controllers import Observed
from training.draws import Drawn, DrawProblems, Group, draw, renumbered, with_critiques
from training.leaks import leak_metrics
from training.learners.hf import half_life
from training.method import EmaWeights, Method
from training.phases import PhaseResult, SamplerGap, run_phase
from training.rollouts import Rollout, rollout_metrics
from training.rows import distances
from training.state import TrainingState
from training.streams import Stream
from training.trainer import Trainer

__all__ = ["Trainer", "UpdateResult", "run_update"]


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did. ``metrics`` and ``cost`` (increments) go by the names of StepRecord."""

    update: int
    problems: list[Problem]
    rollouts: list[Rollout]
    """All that were drawn, also those whose groups were dropped."""
    contexts: list[dict[str, str]]
    """Per rollout: view name -> the privileged text that it saw."""
    metrics: dict[str, float | None]
    cost: dict[str, float]


def run_update(
    trainer: Trainer,
    update: int,
    problems: Sequence[Problem],
    state: TrainingState | None = None,
    *,
    more: DrawProblems | None = None,
) -> UpdateResult:
    """Update number ``update`` (from 1) on ``problems``; the learner's weights and ``state`` are changed in place.

    ``state`` None is that before the first update; ``more`` gives the next batch of problems, for methods that draw
    further ones.

    Metrics: ``loss`` (Σ coefficient · ``loss/<term>`` of the phases that ran, mean over optimiser steps), the
    objective's means (``loss/<term>``, ``divergence/<term>/…``, ``logit_gradient/<term>``, ``entropy/<view>`` …),
    ``kept/<term>`` (share of the rows that take part), ``grad_norm`` before clipping and ``learning_rate`` of the first
    phase that ran (for methods of several phases also ``grad_norm/<phase>``, ``learning_rate/<phase>``),
    ``optimiser_steps/<phase>`` where a batch serves several, ``controller/<name>/<output>`` as this update used it,
    ``shift/<term>`` and ``margin/<term>`` of preferences, the rollout metrics, those of ``draws.draw``, those of
    ``leaks.leak_metrics``,
    ``sampler_logprob_gap`` (mean absolute difference of the sampler's and the learner's log-probability of the drawn
    tokens, where both are of one view at one temperature), ``half_life/<view>`` in updates of averaged views, and
    seconds ``t_generate``, ``t_verify``, ``t_teacher``, ``t_train``, ``t_sync``.

    Cost: ``flop`` is an estimate from all parameters P and those that learn, Q (an adapter's, else P): 4·P + 2·Q a
    token that the learning view reads with a gradient, 2·P a token that is drawn (with its prompt) or read otherwise;
    ``rollout_tokens`` and ``auxiliary_tokens`` (critiques) are drawn tokens, ``teacher_tokens`` prompt and response
    tokens that views read which do not learn, ``trained_tokens`` response tokens of learning views.

    Raises NonFiniteGradientError, ContextOverflowError, and ValueError for problems the method cannot use.
    """
    began = time.perf_counter()
    state = state or TrainingState.initial(trainer.method)
    account = Account(trainer.learner.device, trainer.learner.parameters, trainer.learner.trained_parameters)
    controllers = state.controllers.metrics()
    method = trainer.method.at(update, state.controllers.outputs())
    drawn = draw(trainer, method, update, problems, more, account)
    groups = with_critiques(trainer, method, update, drawn.groups, _asking(method, update), account)
    for rows in state.buffers.values():
        rows += [rollout for group in groups for rollout in group.rollouts]
    results = _run_phases(trainer, method, update, groups, account, state)
    with account.timed("t_sync"):
        trainer.learner.advance(update)
        trainer.learner.synchronise()
    state.controllers.observe(_observed(trainer, state, groups, account))
    wall = time.perf_counter() - began
    account.cost["wall_seconds"] = wall
    account.cost["gpu_seconds"] = wall if account.device.type == "cuda" else 0.0
    contexts = _contexts([stream for phase in results.values() for stream in phase.streams], update, drawn)
    metrics = {
        **_phase_metrics(results, account, several=len(method.phases) > 1),
        **controllers,
        **(rollout_metrics(drawn.rollouts) if drawn.rollouts else {}),
        **drawn.metrics,
        **_half_lives(trainer.method),
        **_leaks(trainer, method, drawn, contexts),
        **{name: account.seconds[name] for name in TIMES},
    }
    return UpdateResult(update, drawn.problems, drawn.rollouts, contexts, metrics, dict(account.cost))


def _run_phases(
    trainer: Trainer, method: Method, update: int, groups: list[Group], account: Account, state: TrainingState
) -> dict[str, PhaseResult]:
    """The phases that are due, in order; a phase without any row takes no step."""
    results: dict[str, PhaseResult] = {}
    drawn = [rollout.completion.logprobs for group in groups for rollout in group.rollouts]
    gap = SamplerGap(method.rollout_view, method.sampling.temperature, drawn)
    for name, phase in method.phases.items():
        if update % phase.every:
            continue
        buffered = name in state.buffers
        own = _buffered(state.buffers[name]) if buffered else groups
        if own:
            first = gap if not results and not buffered else None
            results[name] = run_phase(trainer, method, name, own, account, state, first)
        if buffered:
            state.buffers[name] = []
    if gap.count:
        account.add({"sampler_logprob_gap": (gap.total, float(gap.count))})
    return results


def _buffered(rollouts: Sequence[Rollout]) -> list[Group]:
    """The buffer's rollouts by update and group, numbered anew."""
    groups: dict[tuple[int, int], Group] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.update, rollout.group), Group(rollout.problem, [])).rollouts.append(rollout)
    return renumbered(list(groups.values()))


def _asking(method: Method, update: int) -> list[str]:
    """The views whose contexts ask the policy, among those of phases that are due or that collect rollouts."""
    due = [phase for phase in method.phases.values() if not update % phase.every or phase.rollouts == "since_last"]
    names = {view for phase in due for term in phase.terms.values() for view in (term.of, *term.targets())}
    return [name for name in method.views if name in names]


def _observed(trainer: Trainer, state: TrainingState, groups: Sequence[Group], account: Account) -> Observed:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return Observed(
        loads={term: account.sums.get(f"load/{term}", (0.0, 0.0)) for term in state.controllers.terms()},
        distances={
            similarity: distances(similarity, rollouts, trainer.renderer)
            for similarity in state.controllers.similarities()
        },
    )


def _phase_metrics(results: Mapping[str, PhaseResult], account: Account, *, several: bool) -> dict[str, float | None]:
    ran = {name: result for name, result in results.items() if result.losses}
    metrics: dict[str, float | None] = {
        "loss": sum(sum(result.losses) / len(result.losses) for result in ran.values()) if ran else None,
        **account.metrics(),
    }
    for name, result in ran.items():
        norm = sum(result.norms) / len(result.norms)
        metrics.setdefault("grad_norm", norm)
        metrics.setdefault("learning_rate", result.learning_rate)
        if several:
            metrics[f"grad_norm/{name}"], metrics[f"learning_rate/{name}"] = norm, result.learning_rate
        if len(result.losses) > 1:
            metrics[f"optimiser_steps/{name}"] = float(len(result.losses))
        for stream in result.streams:
            metrics |= {f"kept/{term}": sum(flags) / len(flags) for term, flags in stream.kept.items() if flags}
    return metrics


def _half_lives(method: Method) -> dict[str, float | None]:
    return {
        f"half_life/{name}": half_life(view.weights.teacher_update_rate)
        for name, view in method.views.items()
        if isinstance(view.weights, EmaWeights)
    }


def _contexts(streams: Sequence[Stream], update: int, drawn: Drawn) -> list[dict[str, str]]:
    """The texts that this update's rollouts were shown with, by their places among all that were drawn."""
    texts: list[dict[str, str]] = [{} for _ in drawn.rollouts]
    for stream in streams:
        if stream.data == "rollouts":
            for name, view in stream.views.items():
                for (when, place), context in zip(stream.places, view.contexts, strict=True):
                    if when == update and context is not None and context.text is not None:
                        texts[place][name] = context.text
    return texts


def _leaks(trainer: Trainer, method: Method, drawn: Drawn, contexts: list[dict[str, str]]) -> dict[str, float]:
    """The rollout's own view may see what it was drawn with; every other context is kept from it."""
    hidden = [{view: text for view, text in seen.items() if view != method.rollout_view} for seen in contexts]
    texts = {ids: trainer.renderer.decode(ids) for ids in {rollout.prompt_ids for rollout in drawn.rollouts}}
    failed = [
        rollout.grade is not None and rollout.grade.verdict == "fail" and not rollout.truncated
        for rollout in drawn.rollouts
    ]
    prompts = [texts[rollout.prompt_ids] for rollout in drawn.rollouts]
    return leak_metrics(prompts, [rollout.text for rollout in drawn.rollouts], failed, hidden)
