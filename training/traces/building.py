"""Responses in, traces out: both views at every token, by the same code that computes the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from training.accounting import Account
from training.batches import row_chunks
from training.contexts.specs import NoContext, SelfCritiqueContext
from training.draws import Group, renumbered, with_critiques
from training.looking import StepViews
from training.losses.names import target_views
from training.method import Distill, Method
from training.objective import Denominators, objective
from training.rollouts import Rollout
from training.statistics_pass import needed, statistics
from training.streams import Stream, build_streams, micro_batch
from training.traces.reading import Sides, joined, read_sides
from training.traces.teaching import Teaching, lacking, nothing_to_show, shows_another, student_of
from training.trainer import Trainer
from training.views import ViewPrompts, look, view_prompts

_Item = TypeVar("_Item")

PLAIN_TEMPERATURE = 1.0
"""Where no teacher looks, the student's distribution is shown as it is."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One response as the views see it. Tensors have one entry a token."""

    rollout: Rollout
    student_prompt: tuple[int, ...]
    sides: Sides
    teacher_prompt: tuple[int, ...] | None = None
    context_text: str | None = None
    reason: str | None = None
    """Why no teacher looked."""
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """"divergence" and "weight" of the term, NaN at tokens that take no part."""


def looked_at(
    trainer: Trainer, method: Method, update: int, groups: Sequence[Group], teaching: Teaching | None
) -> list[Looked]:
    """The first response of every group through the views of ``teaching``; ``method`` is that of one update.

    The other responses of a group are there for contexts made of peers. Weights are as they are now; nothing is
    changed, and nothing is drawn but the critiques that a context asks for.
    """
    groups = renumbered([group for group in groups if group.rollouts])
    if teaching is None:
        return _students(trainer, method, groups, ["the method has no teacher"] * len(groups))
    context = method.views[teaching.teacher].context
    if isinstance(context, SelfCritiqueContext):
        # Its critique is of the traced response alone.
        groups = [Group(group.problem, group.rollouts[:1]) for group in groups]
    reasons = _refused(trainer, method, groups, teaching)
    able = renumbered([group for group, reason in zip(groups, reasons, strict=True) if reason is None])
    taught: list[Looked | str] = _taught(trainer, method, update, able, teaching) if able else []
    waiting = iter(taught)
    found: list[Looked | str] = [next(waiting) if reason is None else reason for reason in reasons]
    alone = [group for group, looked in zip(groups, found, strict=True) if isinstance(looked, str)]
    why = [looked for looked in found if isinstance(looked, str)]
    students = iter(_students(trainer, method, alone, why, teaching) if alone else [])
    return [next(students) if isinstance(looked, str) else looked for looked in found]


# --- without a teacher ----------------------------------------------------------------------------------------------


def _students(
    trainer: Trainer, method: Method, groups: Sequence[Group], reasons: Sequence[str], teaching: Teaching | None = None
) -> list[Looked]:
    """Of each group, its first response through the student alone."""
    rollouts = [group.rollouts[0] for group in groups]
    name = student_of(method, teaching)
    view = method.views[name].model_copy(update={"context": NoContext()})
    rows = [rollout.context_row() for rollout in rollouts]
    prompts = view_prompts({name: view}, [name], rows, trainer.renderer, trainer.language)[name].prompts
    parts: list[Sides] = []
    for micro in row_chunks(len(rollouts), trainer.compute.micro_batch_rows):
        part = slice(micro.start, micro.stop)
        responses = [rollout.completion.token_ids for rollout in rollouts[part]]
        names = [f"problem {rollout.problem.id!r}" for rollout in rollouts[part]]
        pad, learner = trainer.renderer.pad_id, trainer.learner
        with learner.numerics():
            seen = look(learner, view, prompts[part], responses, names, pad_id=pad, grad=False)
            parts.append(
                read_sides(
                    {name: seen.hidden},
                    {name: learner.head(view.weights)},
                    torch.tensor([token for response in responses for token in response], device=learner.device),
                    name,
                    None,
                    temperature=teaching.temperature if teaching else PLAIN_TEMPERATURE,
                    chunk_tokens=trainer.compute.head_chunk_tokens,
                )
            )
    whole, spans = joined(parts), _spans([rollout.completion.token_ids for rollout in rollouts])
    return [
        Looked(rollout, prompt or (), whole.part(span), reason=reason)
        for rollout, prompt, span, reason in zip(rollouts, prompts, spans, reasons, strict=True)
    ]


# --- with a teacher -------------------------------------------------------------------------------------------------


def _refused(trainer: Trainer, method: Method, groups: Sequence[Group], teaching: Teaching) -> list[str | None]:
    """Why each group's teacher cannot be asked; None where its prompt can be written.

    Problems of an evaluation were never checked for a teacher, so what the renderer refuses is a reason here and no
    error.
    """
    context = method.views[teaching.teacher].context
    reasons = lacking(context, groups)
    able = [group for group, reason in zip(groups, reasons, strict=True) if reason is None]
    another = shows_another(context)
    if isinstance(context, SelfCritiqueContext):
        return reasons  # the critique itself is cleaned before it is shown
    for place, group in enumerate(groups):
        if reasons[place] is None:
            others = [other for other in able if other.problem.id != group.problem.id] if another else []
            rows = [rollout.context_row() for some in (group, *others[:1]) for rollout in some.rollouts]
            try:
                view_prompts(method.views, [teaching.teacher], rows, trainer.renderer, trainer.language)
            except ValueError as error:
                reasons[place] = str(error)
    return reasons


def _taught(
    trainer: Trainer, method: Method, update: int, groups: list[Group], teaching: Teaching
) -> list[Looked | str]:
    """Of each group, its first response through both views, or why not."""
    account = Account(trainer.learner.device, trainer.learner.parameters, trainer.learner.trained_parameters)
    groups = with_critiques(trainer, method, update, groups, [teaching.teacher], account)
    (stream,) = build_streams(trainer, method, {teaching.name: teaching.term}, groups)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    firsts = [stream.rows_of(range(place, place + 1)).start for place in range(len(groups))]
    reasons = [_does_not_fit(trainer, method, stream, row, teaching) for row in firsts]
    kept = [row for row, reason in zip(firsts, reasons, strict=True) if reason is None]
    if not kept:
        return [reason for reason in reasons if reason is not None]
    picked = _only(stream, kept)
    sides, values = _read(StepViews(trainer, method, picked, range(len(kept)), account, trains=False), teaching)
    looks = {
        row: Looked(
            rollouts[row],
            picked.views[teaching.student].prompts[place] or (),
            sides.part(span),
            picked.views[teaching.teacher].prompts[place],
            None if (context := picked.views[teaching.teacher].contexts[place]) is None else context.text,
            values={name: whole[span] for name, whole in values.items()},
        )
        for place, (row, span) in enumerate(zip(kept, _spans(picked.responses), strict=True))
    }
    return [looks[row] if reason is None else reason for row, reason in zip(firsts, reasons, strict=True)]


def _does_not_fit(trainer: Trainer, method: Method, stream: Stream, row: int, teaching: Teaching) -> str | None:
    answer = len(stream.responses[row])
    for name, prompts in stream.views.items():
        prompt = prompts.prompts[row]
        if prompt is None:
            return nothing_to_show(method.views[teaching.teacher].context)
        if len(prompt) + answer > trainer.learner.context_length:
            return (
                f"the {name}'s prompt of {len(prompt)} tokens and the answer of {answer} exceed the model's "
                f"{trainer.learner.context_length} positions"
            )
    return None


def _read(views: StepViews, teaching: Teaching) -> tuple[Sides, dict[str, Tensor]]:
    """Both sides at all tokens of the stream, and the term's own divergence and weight there."""
    trainer, stream, terms = views.trainer, views.stream, {teaching.name: teaching.term}
    learner, chunk_tokens = trainer.learner, trainer.compute.head_chunk_tokens
    batch = stream.token_batch(views.rows, learner.device)
    distils = isinstance(teaching.term, Distill)
    if distils and needed(terms, alone=True):
        batch, _ = statistics(views, batch, alone=True, with_modulation=True)
    wanted = frozenset(f"{what}/{teaching.name}" for what in ("divergence", "weight")) if distils else frozenset()
    names = dict.fromkeys([teaching.student, teaching.teacher, *target_views(teaching.term)])
    sides: list[Sides] = []
    values: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in views.parts():
        micro = micro_batch(batch, part)
        hidden, heads = views.look(part, names, grad=False)
        with torch.no_grad(), learner.numerics():
            pair, temperature = (teaching.student, teaching.teacher), teaching.temperature
            sides.append(
                read_sides(hidden, heads, micro.ids, *pair, temperature=temperature, chunk_tokens=chunk_tokens)
            )
            if wanted:
                counts = Denominators.of(terms, micro, 1)
                own = objective(
                    terms, micro, hidden, heads, teaching.student, counts, chunk_tokens=chunk_tokens, keep=wanted
                )
                for name in wanted:
                    values[name].append(own.token_values[name])
    return joined(sides), {name.partition("/")[0]: torch.cat(found) for name, found in values.items()}


# --- rows -----------------------------------------------------------------------------------------------------------


def _only(stream: Stream, rows: Sequence[int]) -> Stream:
    """The stream of some of its rows; what their batch gave them (advantages, gates) stays."""

    def chosen(values: Sequence[_Item]) -> list[_Item]:
        return [values[row] for row in rows]

    def by_name(values: Mapping[str, list[_Item]]) -> dict[str, list[_Item]]:
        return {name: chosen(content) for name, content in values.items()}

    return replace(
        stream,
        rows=[replace(content, group=place) for place, content in enumerate(chosen(stream.rows))],
        responses=chosen(stream.responses),
        views={
            name: ViewPrompts(chosen(seen.prompts), chosen(seen.contexts), chosen(seen.context_tokens))
            for name, seen in stream.views.items()
        },
        kept=by_name(stream.kept),
        weights=by_name(stream.weights),
        advantages=by_name(stream.advantages),
        guided=by_name(stream.guided),
        places=chosen(stream.places),
    )


def _spans(responses: Sequence[Sequence[int]]) -> list[slice]:
    """Where each response's tokens stand among the packed ones."""
    ends = list(accumulate(len(response) for response in responses))
    return [slice(end - len(response), end) for response, end in zip(responses, ends, strict=True)]
