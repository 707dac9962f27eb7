"""Prompts: one renderer for student and teacher, so that they differ by the privileged block and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from evaluation.problems import Message, Problem

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

_FIELDS = ("{problem}", "{context}")


class Renderer:
    """Token ids of prompts and reference responses, through the tokenizer's own chat template.

    ``privileged_template`` says how context enters the last user message: ``{problem}`` and ``{context}`` are
    replaced by its text and the context, once each, and nothing else is interpreted, so braces in either are safe.
    ``generation_config`` may name more ids that end a turn than the tokenizer's one end token.

    Raises ValueError when the tokenizer has no chat template or no end token, or the privileged template lacks a
    field.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        privileged_template: str,
        system_prompt: str | None = None,
        generation_config: GenerationConfig | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                f"tokenizer {tokenizer.name_or_path!r} has no chat template: use an instruction-tuned model, or put "
                "a chat_template.jinja into the model's folder"
            )
        if tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no eos_token: set it in tokenizer_config.json")
        for field in _FIELDS:
            if privileged_template.count(field) != 1:
                raise ValueError(f"privileged_template {privileged_template!r} needs {field} exactly once")
        self.tokenizer = tokenizer
        self.privileged_template = privileged_template
        self.system_prompt = system_prompt
        self.end_id: int = tokenizer.eos_token_id
        """The id that is appended to a reference response."""
        self.end_ids = _end_ids(tokenizer, generation_config)
        """Every id that ends a turn."""
        self.pad_id: int = self.end_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        """May equal an end id: responses are masked by length, never by id."""
        self.unknown_id = _unknown_id(tokenizer)
        """The id of text the tokenizer has no token for; None where that cannot happen."""

    def student_ids(self, problem: Problem) -> tuple[int, ...]:
        """The prompt without privileged context, ending with the assistant's header."""
        return self.privileged_ids(problem, None)

    def privileged_ids(self, problem: Problem, context_text: str | None) -> tuple[int, ...]:
        """The prompt with ``context_text`` in its last user message; None gives the student's prompt.

        Raises ValueError, naming the problem, for an empty prompt, a prompt that does not end with a user message,
        text that the tokenizer has no tokens for, and messages that the chat template refuses.
        """
        messages = self._messages(problem, context_text)
        for message in messages:
            self._refuse_unknown(message["content"], f"problem {problem.id!r}")
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ValueError(f"problem {problem.id!r}: the chat template refuses the messages: {error}") from error
        # The template writes the model's special tokens itself; adding them again would double the first one.
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def reference_ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a reference response and the end token. Raises ValueError when ``text`` is empty."""
        if not text:
            raise ValueError("a reference response is empty")
        self._refuse_unknown(text, "a reference response")
        return (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end_id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of response ids, without special tokens: for grading and display, never to be tokenised again."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _messages(self, problem: Problem, context_text: str | None) -> list[dict[str, str]]:
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
            content = fill_template(self.privileged_template, messages[-1].content, context_text)
            messages[-1] = Message(role="user", content=content)
        return [{"role": message.role, "content": message.content} for message in messages]

    def _refuse_unknown(self, text: str, where: str) -> None:
        unknown = self.unknown_id
        if unknown is None or unknown not in self.tokenizer(text, add_special_tokens=False)["input_ids"]:
            return
        for character in text:
            if unknown in self.tokenizer(character, add_special_tokens=False)["input_ids"]:
                raise ValueError(f"{where}: the model's tokenizer has no token for {character!r}")


def fill_template(template: str, problem: str, context: str) -> str:
    """``template`` with its two fields replaced in one pass: fields inside the inserted texts stay as they are."""
    before, _, after = template.partition("{problem}")
    return "".join((before.replace("{context}", context), problem, after.replace("{context}", context)))


def check_lengths(
    renderer: Renderer,
    problems: Sequence[Problem],
    contexts: Sequence[str | None] | None,
    max_positions: int,
    max_new_tokens: int,
) -> None:
    """Refuses prompts that leave no room for the response, before any work.

    ``contexts`` holds the context text of each problem or None; None alone stands for no context at all. Raises
    ValueError naming the problem, its length and the limit when prompt + ``max_new_tokens`` > ``max_positions``.
    """
    for problem, context in zip(problems, contexts or [None] * len(problems), strict=True):
        length = len(renderer.privileged_ids(problem, context))
        if length + max_new_tokens > max_positions:
            what = "prompt" if context is None else "prompt with context"
            raise ValueError(
                f"problem {problem.id!r} of {problem.benchmark}: its {what} has {length} tokens; with "
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
