"""Views at work: each view's own prompt for every row of a batch, and its hidden states at the shared response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from training.batches import align
from training.contexts.build import build_contexts
from training.contexts.language import ContextLanguage
from training.contexts.rows import ContextRow, PrivilegedContext
from training.learners.base import Learner
from training.method import View
from training.rendering import Renderer


@dataclass(frozen=True, slots=True)
class ViewPrompts:
    """What one view sees before each response; None where it has no context for the row and must not look."""

    prompts: list[tuple[int, ...] | None]
    contexts: list[PrivilegedContext | None]
    context_tokens: list[int] = field(default_factory=list)
    """Tokens of each row's context text; 0 without one."""


Rendered = dict[tuple[str, str | None, str | None, bool | None], tuple[int, ...]]
"""Prompts by problem id, context text, user's turn and thinking, so that a batch renders each once."""

_UNBOUNDED = ("peer_success", "environment_feedback", "self_critique")
"""Contexts whose longest text is not known before work: feedback, and rollouts whose text takes more tokens again."""


def view_prompts(
    views: Mapping[str, View],
    names: Sequence[str],
    rows: Sequence[ContextRow],
    renderer: Renderer,
    language: ContextLanguage,
    critiques: Mapping[str, Mapping[int, str]] | None = None,
) -> dict[str, ViewPrompts]:
    """The prompts of the named views for the rows of a batch.

    ``critiques`` holds the answers to a view's ``auxiliary_requests`` by the place of their row. A context that is
    longer than the view's ``max_context_tokens`` is cut at its end, and so is one of rollouts' texts or feedback that
    would leave the row's response no room in the model (renderer.context_length); cuts are marked in the contexts.
    """
    rendered: Rendered = {}
    return {
        name: _prompts_of(views[name], rows, renderer, language, (critiques or {}).get(name), rendered)
        for name in names
    }


def _prompts_of(
    view: View,
    rows: Sequence[ContextRow],
    renderer: Renderer,
    language: ContextLanguage,
    critiques: Mapping[int, str] | None,
    rendered: Rendered,
) -> ViewPrompts:
    seen = ViewPrompts([], [], [])
    for row, context in zip(rows, build_contexts(view.context, rows, language, renderer, critiques), strict=True):
        prompt, shown, tokens = None, context, 0
        if context is not None:
            prompt, shown = _rendered(view, row, context, renderer, rendered)
            tokens = 0 if shown.text is None else renderer.count(shown.text)
        seen.prompts.append(prompt)
        seen.contexts.append(shown)
        seen.context_tokens.append(tokens)
    return seen


def _rendered(
    view: View, row: ContextRow, context: PrivilegedContext, renderer: Renderer, rendered: Rendered
) -> tuple[tuple[int, ...], PrivilegedContext]:
    """The prompt of one row, and its context as it was shown."""
    text, turn = context.text, view.template or context.turn
    if text is not None and view.max_context_tokens is not None:
        text = renderer.prefix(text, view.max_context_tokens)
    key = (row.problem.id, text, turn, view.thinking)
    if key not in rendered:
        rendered[key] = renderer.privileged_ids(row.problem, text, template=turn, thinking=view.thinking)
    ids = rendered[key]
    if text is not None and renderer.context_length is not None and view.context.kind in _UNBOUNDED:
        room = renderer.context_length - len(row.token_ids)
        if len(ids) > room:
            fitted = renderer.fitted(row.problem, text, room, template=turn, thinking=view.thinking)
            ids, text = fitted.ids, fitted.text
    return ids, replace(context, text=text, cut=text != context.text)


def context_metrics(views: Mapping[str, ViewPrompts]) -> dict[str, tuple[float, float]]:
    """Numerator and denominator of each mean, for every view that some row has a context or no look at all for.

    ``context/<view>``: share of rows with a context; ``context_masked/<view>``: of rows that the view does not look
    at; ``context_cut/<view>``: of contexts that were cut; ``context_tokens/<view>``: tokens of a context.
    """
    sums: dict[str, tuple[float, float]] = {}
    for name, view in views.items():
        shown = [context for context in view.contexts if context is not None and context.text is not None]
        masked = sum(context is None for context in view.contexts)
        if shown or masked:
            rows = float(len(view.contexts))
            sums[f"context/{name}"] = (float(len(shown)), rows)
            sums[f"context_masked/{name}"] = (float(masked), rows)
            sums[f"context_cut/{name}"] = (float(sum(context.cut for context in shown)), float(len(shown)))
            sums[f"context_tokens/{name}"] = (float(sum(view.context_tokens)), float(len(shown)))
    return sums


@dataclass(frozen=True, slots=True)
class Look:
    """[N, D] hidden states of one view, and the tokens it read for them (prompts and responses, no padding)."""

    hidden: Tensor
    tokens: int


def look(
    learner: Learner,
    view: View,
    prompts: Sequence[tuple[int, ...] | None],
    responses: Sequence[tuple[int, ...]],
    names: Sequence[str],
    *,
    pad_id: int,
    grad: bool,
) -> Look:
    """The hidden states that predict every response token of the rows, each row behind the view's own prompt.

    Rows whose prompt is None are not run; their hidden states are zeros, to be masked by the caller.
    """
    seen = [row for row, prompt in enumerate(prompts) if prompt is not None]
    if not seen:
        like = next(learner.head(view.weights).parameters())
        return Look(like.new_zeros(sum(map(len, responses)), learner.hidden_size), 0)
    batch = align(
        [prompt for prompt in prompts if prompt is not None],
        [responses[row] for row in seen],
        pad_id=pad_id,
        context_length=learner.context_length,
        names=[names[row] for row in seen],
        device=learner.device,
    )
    hidden = learner.hidden(view.weights, batch, grad=grad)
    if len(seen) == len(prompts):
        return Look(hidden, batch.tokens)
    lengths = [len(response) for response in responses]
    parts, here = [], 0
    for row, length in enumerate(lengths):
        if prompts[row] is None:
            parts.append(hidden.new_zeros(length, hidden.shape[-1]))
        else:
            parts.append(hidden[here : here + length])
            here += length
    return Look(torch.cat(parts), batch.tokens)
