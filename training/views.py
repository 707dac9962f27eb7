"""Views at work: each view's own prompt for every row of a batch, and its hidden states at the shared response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.problems import Problem
from training.batches import align
from training.contexts.build import PrivilegedContext, build_contexts
from training.learners.base import Learner
from training.method import View
from training.rendering import Renderer


@dataclass(frozen=True, slots=True)
class ViewPrompts:
    """What one view sees before each response; None where it has no context for the row and must not look."""

    prompts: list[tuple[int, ...] | None]
    contexts: list[PrivilegedContext | None]


Rendered = dict[tuple[str, str | None], tuple[int, ...]]
"""Prompts by problem id and context text, so that a batch renders each once."""


def view_prompts(
    views: Mapping[str, View], names: Sequence[str], problems: Sequence[Problem], renderer: Renderer, rendered: Rendered
) -> dict[str, ViewPrompts]:
    """The prompts of the named views for a batch with one entry of ``problems`` a row; ``rendered`` is added to."""
    return {name: _prompts_of(views[name], problems, renderer, rendered) for name in names}


def _prompts_of(view: View, problems: Sequence[Problem], renderer: Renderer, rendered: Rendered) -> ViewPrompts:
    contexts = build_contexts(view.context, problems)
    prompts: list[tuple[int, ...] | None] = []
    for problem, context in zip(problems, contexts, strict=True):
        if context is None:
            prompts.append(None)
            continue
        key = (problem.id, context.text)
        if key not in rendered:
            rendered[key] = renderer.privileged_ids(problem, context.text)
        prompts.append(rendered[key])
    return ViewPrompts(prompts, contexts)


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
        return Look(torch.zeros(sum(map(len, responses)), learner.hidden_size, device=learner.device), 0)
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
