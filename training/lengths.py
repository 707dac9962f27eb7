"""Do a run's prompts and answers fit the model? Asked with the tokenizer alone, before any process is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaluation.problems import Problem
from training.base_models import ResolvedModel
from training.contexts.attempts import request_for
from training.contexts.language import ContextLanguage
from training.contexts.longest import longest_context
from training.contexts.specs import SelfCritiqueContext
from training.method import Method, View
from training.rendering import Renderer, check_lengths, check_template, language_of
from training.sources import Sources
from training.spec import RunSpec

SLACK_TOKENS = 16
"""Tokens by which a prompt's length may differ from the sum of its parts (merges across their borders)."""


def lengths_key(spec: RunSpec) -> str:
    """Runs with equal keys need the same prompts and lengths."""
    method = spec.method
    asked = None
    if method is not None:
        views = {name: view.model_dump(mode="json", exclude={"weights"}) for name, view in method.views.items()}
        used = sorted(method.views_used())
        asked = [views, used, sorted({term.data for term in method.terms()}), method.sampling.max_new_tokens]
    return json.dumps([spec.model.model_dump(), asked, spec.evaluation.model_dump_json(), str(spec.data)])


TokenCounts = dict[str, tuple[int, bool]]
"""Text -> its tokens by one model's tokenizer, and whether some of it has no token."""


def check_run_lengths(spec: RunSpec, model: ResolvedModel, sources: Sources, counts: TokenCounts | None = None) -> None:
    """Raise ValueError naming the problem, its prompt length and the model's context where something does not fit.

    Contexts made of rollouts are taken at their longest. Feedback is not foreseen: it is cut where it does not fit.
    ``counts`` of the same model saves counting again what other runs of a plan show too; it is added to.
    """
    from transformers import AutoConfig, AutoTokenizer

    limit = AutoConfig.from_pretrained(model.path).max_position_embeddings
    tokenizer: Any = AutoTokenizer.from_pretrained(model.path)
    renderer = Renderer.for_model(tokenizer, model, spec.model.system_prompt)
    asked = _Asked(renderer, limit, {} if counts is None else counts)
    if spec.evaluation.thinking is not None:
        renderer.require_thinking("evaluation.thinking")
    for _, problems in sources.evaluations.values():
        asked.check(problems, spec.evaluation.sampling.max_new_tokens, thinking=spec.evaluation.thinking)
    if spec.method is not None:
        _check_training(asked, spec.method, sources.train, language_of(model))


def _check_training(asked: _Asked, method: Method, train: Sequence[Problem], language: ContextLanguage) -> None:
    drawn = method.sampling.max_new_tokens if method.uses_rollouts() else 0
    longest = max(drawn, _longest_reference(asked, method, train))
    asked.check(train, longest)
    for name in sorted(method.views_used()):
        view = method.views[name]
        _check_switches(asked.renderer, view, f"views.{name}")
        if view.thinking is not None:
            asked.check(train, longest, thinking=view.thinking)
        if view.context.kind == "none":
            continue
        _check_view(asked, view, train, language, drawn, longest)
        if isinstance(view.context, SelfCritiqueContext):
            text, turn = request_for("", language)
            asked.check(
                train,
                view.context.max_new_tokens,
                [text] * len(train),
                template=turn,
                thinking=view.thinking,
                further_tokens=drawn,
            )


def _check_switches(renderer: Renderer, view: View, place: str) -> None:
    if view.template is not None:
        check_template(view.template, f"{place}.template")
    if view.thinking is not None:
        renderer.require_thinking(f"{place}.thinking")


def _longest_reference(asked: _Asked, method: Method, train: Sequence[Problem]) -> int:
    if not any(term.data == "references" for term in method.terms()):
        return 0
    return 1 + max(tokens for tokens, _ in asked.counted([problem.solution or "" for problem in train]))


def _check_view(
    asked: _Asked, view: View, train: Sequence[Problem], language: ContextLanguage, drawn: int, longest: int
) -> None:
    worst = longest_context(view.context, train, language, asked.renderer, drawn)
    texts, further = worst.texts, worst.further_tokens
    most = view.max_context_tokens
    if most is not None:
        texts = [asked.renderer.prefix(text, most) for text in texts]
        further = min(further, max(0, most - min(map(asked.renderer.count, set(texts)))))
    asked.check(
        train,
        longest,
        texts,
        template=view.template or worst.turn,
        thinking=view.thinking,
        further_tokens=further,
    )


class _Asked:
    """``check_lengths`` for the few problems that need it: one of each shape of chat, and those near or over the limit.

    Rendering tens of thousands of prompts one by one takes many seconds; their parts are tokenised in one batch.
    """

    def __init__(self, renderer: Renderer, limit: int, counts: TokenCounts) -> None:
        self.renderer = renderer
        self.limit = limit
        self.counts = counts

    def counted(self, texts: Sequence[str]) -> list[tuple[int, bool]]:
        """Tokens of each text, and whether some of it has no token; every text is tokenised once."""
        new = list(dict.fromkeys(text for text in texts if text not in self.counts))
        if new:
            ids = self.renderer.tokenizer(new, add_special_tokens=False)["input_ids"]
            unknown = self.renderer.unknown_id
            self.counts.update((text, (len(part), unknown in part)) for text, part in zip(new, ids, strict=True))
        return [self.counts[text] for text in texts]

    def check(
        self,
        problems: Sequence[Problem],
        new_tokens: int,
        contexts: Sequence[str] | None = None,
        *,
        template: str | None = None,
        thinking: bool | None = None,
        further_tokens: int = 0,
    ) -> None:
        renderer = self.renderer
        texts = ["".join(message.content for message in problem.prompt) for problem in problems]
        parts = [self.counted(texts), *([self.counted(contexts)] if contexts else [])]
        overhead: dict[tuple[str, ...], int] = {}
        doubtful = []
        for index, problem in enumerate(problems):
            length = sum(part[index][0] for part in parts)
            shape = tuple(message.role for message in problem.prompt)
            odd = not texts[index].strip() or any(part[index][1] for part in parts)
            if shape not in overhead and not odd:
                context = contexts[index] if contexts else None
                ids = renderer.privileged_ids(problem, context, template=template, thinking=thinking)
                overhead[shape] = len(ids) - length
                odd = True
            if odd or length + overhead[shape] + SLACK_TOKENS + further_tokens + new_tokens > self.limit:
                doubtful.append(index)
        check_lengths(
            renderer,
            [problems[index] for index in doubtful],
            [contexts[index] for index in doubtful] if contexts else None,
            self.limit,
            new_tokens,
            template=template,
            thinking=thinking,
            further_tokens=further_tokens,
        )
