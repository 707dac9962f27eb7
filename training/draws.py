"""What an update draws: rollouts, further problems where groups are all alike (DAPO), and critiques for contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluation.problems import Problem
from evaluation.samplers.base import SampleRequest
from training.accounting import Account
from training.contexts.attempts import auxiliary_requests, auxiliary_sampling
from training.contexts.rows import ContextRow
from training.credit.rewards import uneven_groups
from training.method import Method
from training.rollouts import Rollout, grade_rollouts, rollout_seed, sample_rollouts
from training.trainer import Trainer
from training.views import view_prompts

DrawProblems = Callable[[], Sequence[Problem]]
"""The next batch of problems in the training order."""


@dataclass(frozen=True, slots=True)
class Group:
    """One problem of an update with its rollouts (none where the method draws none)."""

    problem: Problem
    rollouts: list[Rollout]


@dataclass(frozen=True, slots=True)
class Drawn:
    """``groups`` are learned from; ``rollouts`` are all that were drawn, in order, ``problems`` what they answer."""

    groups: list[Group]
    rollouts: list[Rollout]
    problems: list[Problem]
    metrics: dict[str, float | None]


def draw(
    trainer: Trainer,
    method: Method,
    update: int,
    problems: Sequence[Problem],
    more: DrawProblems | None,
    account: Account,
) -> Drawn:
    """The rollouts of one update, graded and rewarded; ``problems`` alone for a method that draws none.

    With groups "mixed_rewards" those whose scores are all equal are dropped, and further batches of problems are
    drawn from ``more`` until ``prompts`` groups are found or ``max_draws`` batches were drawn. The score is the
    grade's, before length penalties (DAPO, equation 11). Dropped rollouts are charged; metrics ``draws``,
    ``groups_dropped`` and ``tokens_dropped`` count them.
    """
    if not method.uses_rollouts():
        return Drawn([Group(problem, []) for problem in problems], [], list(problems), {})
    if method.batch.groups == "all":
        rollouts = _one_draw(trainer, method, update, problems, [], account)
        groups = _grouped(problems, rollouts)
        return Drawn(groups, rollouts, list(problems), {})
    asked, drawn, draws = list(problems), _one_draw(trainer, method, update, problems, [], account), 1
    kept = _mixed(asked, drawn)
    while len(kept) < method.batch.prompts and draws < method.batch.max_draws and more is not None:
        further = more()
        drawn = [*drawn, *_one_draw(trainer, method, update, further, drawn, account)]
        asked, draws = [*asked, *further], draws + 1
        kept = _mixed(asked, drawn)
    kept = kept[: method.batch.prompts]
    used = {rollout.index for group in kept for rollout in group.rollouts}
    metrics: dict[str, float | None] = {
        "draws": float(draws),
        "groups_dropped": float(len(asked) - len(kept)),
        "tokens_dropped": float(sum(len(r.completion.token_ids) for r in drawn if r.index not in used)),
    }
    return Drawn(kept, drawn, asked, metrics)


def _one_draw(
    trainer: Trainer,
    method: Method,
    update: int,
    problems: Sequence[Problem],
    before: Sequence[Rollout],
    account: Account,
) -> list[Rollout]:
    view = method.views[method.rollout_view]
    with account.timed("t_generate"):
        rollouts = sample_rollouts(
            trainer.learner.sampler(view.weights),
            problems,
            _prompts(trainer, method, problems),
            group_size=method.batch.group_size,
            params=method.sampling,
            run_seed=trainer.run_seed,
            update=update,
            first=len(before),
            first_group=before[-1].group + 1 if before else 0,
        )
    account.drew(
        "rollout_tokens",
        sum(len(rollout.prompt_ids) for rollout in rollouts),
        sum(len(rollout.completion.token_ids) for rollout in rollouts),
    )
    with account.timed("t_verify"):
        return grade_rollouts(
            rollouts,
            trainer.benchmark,
            lambda ids: method.sampling.graded(trainer.renderer.decode(ids)),
            method.reward,
            method.sampling.max_new_tokens,
        )


def _prompts(trainer: Trainer, method: Method, problems: Sequence[Problem]) -> list[tuple[int, ...]]:
    name = method.rollout_view
    rows = [ContextRow(problem, group) for group, problem in enumerate(problems)]
    seen = view_prompts(method.views, [name], rows, trainer.renderer, trainer.language)
    prompts = [prompt for prompt in seen[name].prompts if prompt is not None]
    if len(prompts) < len(problems):
        raise ValueError(
            f"rollout_view {name!r} has no context before there is a rollout: give views.{name}.context a kind that "
            "depends on the problem alone"
        )
    return prompts


def _grouped(problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> list[Group]:
    groups = [Group(problem, []) for problem in problems]
    for rollout in rollouts:
        groups[rollout.group].rollouts.append(rollout)
    return groups


def _mixed(problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> list[Group]:
    """The groups with different scores, numbered anew."""
    uneven = uneven_groups([r.score for r in rollouts], [r.group for r in rollouts])
    kept = [group for place, group in enumerate(_grouped(problems, rollouts)) if place in uneven]
    return renumbered(kept)


def renumbered(groups: Sequence[Group]) -> list[Group]:
    """The groups with their rollouts' ``group`` set to the place here."""
    return [
        Group(group.problem, [replace(rollout, group=place) for rollout in group.rollouts])
        for place, group in enumerate(groups)
    ]


def with_critiques(
    trainer: Trainer, method: Method, update: int, groups: Sequence[Group], names: Sequence[str], account: Account
) -> list[Group]:
    """The groups with what the policy says of each attempt, for the named views that ask for it (self_critique)."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rows = [rollout.context_row() for rollout in rollouts]
    critiques: list[dict[str, str]] = [{} for _ in rollouts]
    for name in names:
        view = method.views[name]
        params = auxiliary_sampling(view.context)
        if params is None:
            continue
        requests = auxiliary_requests(view.context, rows, trainer.language, trainer.renderer, thinking=view.thinking)
        with account.timed("t_generate"):
            answers = trainer.learner.sampler().sample(
                [
                    SampleRequest(
                        request.prompt_ids,
                        rollout_seed(trainer.run_seed, update, rollouts[request.row].index, "critique"),
                    )
                    for request in requests
                ],
                params,
            )
        account.drew(
            "auxiliary_tokens",
            sum(len(request.prompt_ids) for request in requests),
            sum(len(answer.token_ids) for answer in answers),
        )
        for request, answer in zip(requests, answers, strict=True):
            critiques[request.row][name] = trainer.renderer.decode(answer.token_ids)
    said = iter(critiques)
    return [
        Group(group.problem, [replace(rollout, critiques=next(said)) for rollout in group.rollouts]) for group in groups
    ]
