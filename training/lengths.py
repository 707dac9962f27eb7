"""Do a run's prompts and answers fit the model? Asked with the tokenizer alone, before any process is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaluation.problems import Problem
from training.base_models import ResolvedModel
from training.contexts.specs import NoContext
from training.rendering import Renderer, check_lengths
from training.sources import Sources
from training.spec import RunSpec

SLACK_TOKENS = 16
"""Tokens by which a prompt's length may differ from the sum of its parts (merges across their borders)."""


def lengths_key(spec: RunSpec) -> str:
    """Runs with equal keys need the same prompts and lengths."""
    longest = spec.method.sampling.max_new_tokens if spec.method else None
    return json.dumps(
        [spec.model.model_dump(), _has_context(spec), longest, spec.evaluation.model_dump_json(), str(spec.data)]
    )


def check_run_lengths(spec: RunSpec, model: ResolvedModel, sources: Sources) -> None:
    """Raise ValueError naming the problem, its prompt length and the model's context where something does not fit."""
    from transformers import AutoConfig, AutoTokenizer

    limit = AutoConfig.from_pretrained(model.path).max_position_embeddings
    tokenizer: Any = AutoTokenizer.from_pretrained(model.path)
    renderer = Renderer(tokenizer, model.privileged_template, spec.model.system_prompt)
    for _, problems in sources.evaluations.values():
        _check(renderer, problems, None, limit, spec.evaluation.sampling.max_new_tokens)
    if spec.method is not None:
        contexts = [problem.solution or "" for problem in sources.train] if _has_context(spec) else None
        _check(renderer, sources.train, contexts, limit, spec.method.sampling.max_new_tokens)


def _has_context(spec: RunSpec) -> bool:
    views = spec.method.views.values() if spec.method else ()
    return any(not isinstance(view.context, NoContext) for view in views)


def _check(
    renderer: Renderer, problems: Sequence[Problem], contexts: Sequence[str] | None, limit: int, new_tokens: int
) -> None:
    """``check_lengths`` for the few that need it: one of each shape of chat, and those odd, near or over the limit.

    Rendering tens of thousands of prompts one by one takes many seconds; their parts are tokenised in one batch.
    """
    texts = ["".join(message.content for message in problem.prompt) for problem in problems]
    parts = [renderer.tokenizer(texts, add_special_tokens=False)["input_ids"]]
    if contexts:
        parts.append(renderer.tokenizer(list(contexts), add_special_tokens=False)["input_ids"])
    overhead: dict[tuple[str, ...], int] = {}
    doubtful = []
    for index, problem in enumerate(problems):
        length = sum(len(part[index]) for part in parts)
        shape = tuple(message.role for message in problem.prompt)
        odd = not texts[index].strip() or any(renderer.unknown_id in part[index] for part in parts)
        if shape not in overhead and not odd:
            overhead[shape] = len(renderer.privileged_ids(problem, contexts[index] if contexts else None)) - length
            odd = True
        if odd or length + overhead[shape] + SLACK_TOKENS + new_tokens > limit:
            doubtful.append(index)
    chosen = [contexts[index] for index in doubtful] if contexts else None
    check_lengths(renderer, [problems[index] for index in doubtful], chosen, limit, new_tokens)
