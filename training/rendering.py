"""Prompts: one renderer for student and teacher, so that they differ by the privileged block and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from evaluation.problems import Message, Problem
from training.base_models.catalogue import DEFAULT_PRIVILEGED_TEMPLATE
from training.contexts.language import NATURAL_LANGUAGE, ContextLanguage, fill

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

    from training.base_models import ResolvedModel

_FIELDS = ("{problem}", "{context}")
_THINKING = re.compile(r"\benable_thinking\b")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that fits, the context text that is in it, and whether that was cut."""

    ids: tuple[int, ...]
    text: str | None
    cut: bool


class Renderer:
    """Token ids of prompts and reference responses, through the tokenizer's own chat template.

    ``privileged_template`` says how context enters the last user message: ``{problem}`` and ``{context}`` are
    replaced by its text and the context, once each, and nothing else is interpreted, so braces in either are safe.
    ``generation_config`` may name more ids that end a turn than the tokenizer's one end token. ``context_length`` is
    how many positions the model has, None where nothing shall be cut to fit.

    Raises ValueError when the tokenizer has no chat template or no end token, or the privileged template lacks a
    field.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        privileged_template: str,
        system_prompt: str | None = None,
        generation_config: GenerationConfig | None = None,
        context_length: int | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                f"tokenizer {tokenizer.name_or_path!r} has no chat template: use an instruction-tuned model, or put "
                "a chat_template.jinja into the model's folder"
            )
        if tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no eos_token: set it in tokenizer_config.json")
        check_template(privileged_template, "privileged_template")
        self.tokenizer = tokenizer
        self.privileged_template = privileged_template
        self.system_prompt = system_prompt
        self.context_length = context_length
        self.knows_thinking = _THINKING.search(str(tokenizer.chat_template)) is not None
        """Whether the chat template has a thinking switch."""
        self.end_id: int = tokenizer.eos_token_id
        """The id that is appended to a reference response."""
        self.end_ids = _end_ids(tokenizer, generation_config)
        """Every id that ends a turn."""
        self.pad_id: int = self.end_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        """May equal an end id: responses are masked by length, never by id."""
        self.unknown_id = _unknown_id(tokenizer)
        """The id of text the tokenizer has no token for; None where that cannot happen."""
        self._specials = _special_texts(tokenizer)

    @classmethod
    def for_model(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        model: ResolvedModel,
        system_prompt: str | None,
        generation_config: GenerationConfig | None = None,
        context_length: int | None = None,
    ) -> Renderer:
        """The renderer of a model's own tokenizer, with the model's privileged template."""
        return cls(tokenizer, model.privileged_template, system_prompt, generation_config, context_length)

    def student_ids(self, problem: Problem, *, thinking: bool | None = None) -> tuple[int, ...]:
        """The prompt without privileged context, ending with the assistant's header."""
        return self.privileged_ids(problem, None, thinking=thinking)

    def privileged_ids(
        self, problem: Problem, context_text: str | None, *, template: str | None = None, thinking: bool | None = None
    ) -> tuple[int, ...]:
        """The prompt with ``context_text`` in its last user message; None gives the student's prompt.

        ``template`` stands in for ``privileged_template``; ``thinking`` is the chat template's switch, None leaves it
        alone. With equal flags the prompts with and without context differ by the privileged block only.

        Raises ValueError, naming the problem, for an empty prompt, a prompt that does not end with a user message,
        text that the tokenizer has no tokens for, messages that the chat template refuses, and a thinking flag for a
        chat template without a switch.
        """
        messages = self._messages(problem, context_text, template or self.privileged_template)
        for message in messages:
            self._refuse_unknown(message["content"], f"problem {problem.id!r}")
        switch: dict[str, Any] = {}
        if thinking is not None:
            self.require_thinking("thinking")
            switch = {"enable_thinking": thinking}
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **switch)
        except TemplateError as error:
            raise ValueError(f"problem {problem.id!r}: the chat template refuses the messages: {error}") from error
        # The template writes the model's special tokens itself; adding them again would double the first one.
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def fitted(
        self,
        problem: Problem,
        context_text: str,
        limit: int | None,
        *,
        template: str | None = None,
        thinking: bool | None = None,
    ) -> Fitted:
        """``privileged_ids`` of at most ``limit`` tokens: the context is cut at its end, and nothing else ever is.

        Where the question and the chat template alone are longer, the context is cut to nothing and the prompt stays
        too long, for the caller to refuse.
        """
        text, ids = context_text, self.privileged_ids(problem, context_text, template=template, thinking=thinking)
        while limit is not None and len(ids) > limit and text:
            # A border that merges otherwise after the cut may cost a token: then it is cut again.
            text = self.prefix(text, self.count(text) - (len(ids) - limit))
            ids = self.privileged_ids(problem, text, template=template, thinking=thinking)
        return Fitted(ids, text, text != context_text)

    def require_thinking(self, place: str) -> None:
        """Raises ValueError naming ``place`` when the chat template has no thinking switch."""
        if not self.knows_thinking:
            raise ValueError(
                f"{place} is set, and the chat template of {self.tokenizer.name_or_path!r} has no thinking switch "
                f"(enable_thinking): set {place} to null, or take a model that has one"
            )

    def count(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prefix(self, text: str, count: int) -> str:
        """The beginning of ``text`` under its first ``count`` tokens, without a token that ends inside a character.

        Raises ValueError for a tokenizer that does not know where its tokens stand (one without a fast backend).
        """
        if count <= 0:
            return ""
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"tokenizer {self.tokenizer.name_or_path!r} has no fast backend, which cutting a text by tokens needs: "
                "cut by characters (context.unit), or take a model with a tokenizer.json"
            )
        spans = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if count >= len(spans):
            return text
        while count and spans[count][0] < spans[count - 1][1]:
            count -= 1
        return text[: spans[count - 1][1]] if count else ""

    def clean(self, text: str) -> str:
        """``text`` that a model or an environment wrote, as it may enter a prompt.

        What would be read as one of the tokenizer's special tokens is removed, and characters without a token too.
        """
        before = None
        while before != text:
            # Removing one may put another together.
            before = text
            for special in self._specials:
                text = text.replace(special, "")
        if self._has_unknown(text):
            text = "".join(character for character in text if not self._has_unknown(character))
        return text.strip()

    def reference_ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a reference response and the end token. Raises ValueError when ``text`` is empty."""
        if not text:
            raise ValueError("a reference response is empty")
        self._refuse_unknown(text, "a reference response")
        return (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end_id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of response ids, without special tokens: for grading and display, never to be tokenised again."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _messages(self, problem: Problem, context_text: str | None, template: str) -> list[dict[str, str]]:
        if not problem.prompt or not problem.prompt[-1].content.strip():
            raise ValueError(f"problem {problem.id!r} of {problem.benchmark} has an empty prompt")
        if problem.prompt[-1].role != "user":
            raise ValueError(
                f"problem {problem.id!r}: the prompt ends with role {problem.prompt[-1].role!r}, not 'user'"
            )
        messages = list(problem.prompt)
        if self.system_prompt is not None:
            messages.insert(0, Message(role="system", content=self.system_prompt))
        if context_text is not None:
            content = fill(template, problem=messages[-1].content, context=context_text)
            messages[-1] = Message(role="user", content=content)
        return [{"role": message.role, "content": message.content} for message in messages]

    def _refuse_unknown(self, text: str, where: str) -> None:
        if not self._has_unknown(text):
            return
        for character in text:
            if self._has_unknown(character):
                raise ValueError(
                    f"{where}: the model's tokenizer has no token for {character!r}: take a model that reads this text "
                    "(the tiny bases read their own tasks only)"
                )

    def _has_unknown(self, text: str) -> bool:
        unknown = self.unknown_id
        return unknown is not None and unknown in self.tokenizer(text, add_special_tokens=False)["input_ids"]


def language_of(model: ResolvedModel) -> ContextLanguage:
    """How contexts are worded for ``model``: its own language, else plain sentences.

    A privileged template of the user's own holds every context; the default one leaves room for the language's turns.
    """
    if model.language is not None:
        return model.language
    is_default = model.privileged_template == DEFAULT_PRIVILEGED_TEMPLATE
    return NATURAL_LANGUAGE if is_default else NATURAL_LANGUAGE.in_one_turn()


def check_template(template: str, place: str) -> None:
    """Raises ValueError naming ``place`` when a field is missing or there twice."""
    for field in _FIELDS:
        if template.count(field) != 1:
            raise ValueError(f"{place} {template!r} needs {field} exactly once")


def fill_template(template: str, problem: str, context: str) -> str:
    """``template`` with its two fields replaced in one pass: fields inside the inserted texts stay as they are."""
    return fill(template, problem=problem, context=context)


def check_lengths(
    renderer: Renderer,
    problems: Sequence[Problem],
    contexts: Sequence[str | None] | None,
    max_positions: int,
    max_new_tokens: int,
    *,
    template: str | None = None,
    thinking: bool | None = None,
    further_tokens: int = 0,
) -> None:
    """Refuses prompts that leave no room for the response, before any work.

    ``contexts`` holds the context text of each problem or None; None alone stands for no context at all.
    ``further_tokens`` is the most that rollouts may add to each prompt. Raises ValueError naming the problem, its
    length and the limit when prompt + ``max_new_tokens`` > ``max_positions``.
    """
    for problem, context in zip(problems, contexts or [None] * len(problems), strict=True):
        ids = renderer.privileged_ids(problem, context, template=template, thinking=thinking)
        length = len(ids) + further_tokens
        if length + max_new_tokens > max_positions:
            what = "prompt" if context is None else "prompt with context"
            most = "up to " if further_tokens else ""
            raise ValueError(
                f"problem {problem.id!r} of {problem.benchmark}: its {what} has {most}{length} tokens; with "
                f"{max_new_tokens} new tokens that is {length + max_new_tokens}, and the model takes {max_positions}: "
                "leave the problem out, lower max_new_tokens, or take a model with a longer context"
            )


def _end_ids(tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig | None) -> frozenset[int]:
    ids = {tokenizer.eos_token_id}
    named = None if generation_config is None else generation_config.eos_token_id
    if named is not None:
        ids |= set(named) if isinstance(named, list | tuple) else {named}
    return frozenset(ids)


def _unknown_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    # Byte-level tokenizers declare an unknown token that they never use; they need no check.
    unknown = tokenizer.unk_token_id
    unassigned_character = "\u0378"
    found = unknown is not None and unknown in tokenizer(unassigned_character, add_special_tokens=False)["input_ids"]
    return unknown if found else None


def _special_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The texts that the tokenizer reads as special tokens, longest first."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens}, key=lambda text: (-len(text), text))
