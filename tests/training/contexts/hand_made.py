"""Rollouts written by hand, a tokenizer of bytes with a thinking switch, and a language whose marks are easy to see."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evaluation.problems import Grade, Message, Problem, Verdict
from training.contexts.language import BLOCK_KINDS, ContextLanguage
from training.contexts.rows import ContextRow
from training.rendering import Renderer

MARKED = ContextLanguage(
    templates={kind: f"<{kind}>{{text}}" for kind in BLOCK_KINDS},
    separator="|",
    mask="~",
    answer_marker="#",
    example="{problem}->{text}",
)
"""``<kind>text`` blocks, joined by ``|``."""

THINKING_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)
"""Like Qwen3's: with thinking off, the assistant's turn begins with a thought that is closed already."""

PLAIN_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def byte_tokenizer(template: str = THINKING_TEMPLATE) -> Any:
    """Every byte is a token, so that a character of three bytes can be cut in two places."""
    specials = {"<pad>": 0, "<end>": 1}
    letters = {letter: index + 2 for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=specials | letters, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<end>", pad_token="<pad>", chat_template=template
    )


def byte_renderer(
    template: str = THINKING_TEMPLATE, privileged: str = "{problem}[{context}]", context_length: int | None = None
) -> Renderer:
    return Renderer(byte_tokenizer(template), privileged, context_length=context_length)


def problem(name: str = "a", *, solution: str | None = "first second", answer: str = "7") -> Problem:
    return Problem(
        id=name,
        benchmark="toy",
        split="train",
        prompt=(Message(role="user", content=f"ask {name}"),),
        answer=answer,
        solution=solution,
    )


def rollout(
    text: str | None,
    score: float | None,
    group: int = 0,
    feedback: str | None = None,
    name: str | None = None,
) -> ContextRow:
    """One row; ``score`` None is a response that could not be graded."""
    verdict: Verdict = "not_scored" if score is None else "pass" if score >= 1 else "fail"
    grade = Grade(verdict=verdict, score=score, grader="toy", version="1", feedback=feedback)
    ids = tuple(range(len(text or "")))
    return ContextRow(problem(name or f"p{group}"), group, text, ids, score, grade)
