"""Do a run's prompts and answers fit the model? Asked with the tokenizer alone, before any process is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaluation.problems import Problem
from training.base_models import ResolvedModel
from training.method import Method
from training.rendering import Renderer, check_lengths
from training.sources import Sources
from training.spec import RunSpec

SLACK_TOKENS = 16
"""Tokens by which a prompt's length may differ from the sum of its parts (merges across their borders)."""


def lengths_key(spec: RunSpec) -> str:
    """Runs with equal keys need the same prompts and lengths."""
    method = spec.method
    asked = None
    if method is not None:
        contexts = sorted({view.context.kind for view in method.views.values()})
        asked = [contexts, sorted({term.data for term in method.terms()}), method.sampling.max_new_tokens]
    return json.dumps([spec.model.model_dump(), asked, spec.evaluation.model_dump_json(), str(spec.data)])


def check_run_lengths(spec: RunSpec, model: ResolvedModel, sources: Sources) -> None:
    """Raise ValueError naming the problem, its prompt length and the model's context where something does not fit."""
    from transformers import AutoConfig, AutoTokenizer

    limit = AutoConfig.from_pretrained(model.path).max_position_embeddings
    tokenizer: Any = AutoTokenizer.from_pretrained(model.path)
    renderer = Renderer(tokenizer, model.privileged_template, spec.model.system_prompt)
    for _, problems in sources.evaluations.values():
        _check(renderer, problems, None, limit, spec.evaluation.sampling.max_new_tokens)
    if spec.method is not None:
        _check_training(renderer, spec.method, sources.train, limit)


def _check_training(renderer: Renderer, method: Method, train: Sequence[Problem], limit: int) -> None:
    kinds = {view.context.kind for view in method.views.values()}
    solutions = [problem.solution or "" for problem in train]
    longest = method.sampling.max_new_tokens if method.uses_rollouts() else 0
    if any(term.data == "references" for term in method.terms()):
        references = renderer.tokenizer(solutions, add_special_tokens=False)["input_ids"]
        longest = max(longest, *(len(ids) + 1 for ids in references))
    _check(renderer, train, None, limit, longest)
    if "solution" in kinds:
        _check(renderer, train, solutions, limit, longest)
    if "other_problem" in kinds:
        # Any other problem's solution may come: the longest must fit.
        _check(renderer, train, [max(solutions, key=len)] * len(train), limit, longest)


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
