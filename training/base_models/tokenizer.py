"""The tiny models' own tokenizer: one character is one token, plus six special tokens and a chat template."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END, USER, ASSISTANT, TOOL, HINT = SPECIALS = tuple(
    f"<|{name}|>" for name in ("pad", "end", "user", "assistant", "tool", "hint")
)
CHARACTERS = string.digits + "+-*=;#?:,.>() " + string.ascii_lowercase
VOCABULARY: dict[str, int] = {token: index for index, token in enumerate([*SPECIALS, *CHARACTERS])}

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ('user', 'assistant', 'tool') -%}"
    "{{- raise_exception('the tiny models know the roles user, assistant and tool, not ' ~ message['role']) -}}"
    "{%- endif -%}"
    "{{- '<|' ~ message['role'] ~ '|>' ~ message['content'] ~ '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def encode(text: str) -> list[int]:
    """Token ids of ``text`` without special tokens; KeyError on a character outside CHARACTERS."""
    return [VOCABULARY[character] for character in text]


def question_ids(question: str, context: str | None = None) -> list[int]:
    """The prompt as the chat template renders it, with ``context`` after the hint token of the user turn."""
    hint = [] if context is None else [VOCABULARY[HINT], *encode(context)]
    return [VOCABULARY[USER], *encode(question), *hint, VOCABULARY[END], VOCABULARY[ASSISTANT]]


def build_tokenizer(max_positions: int) -> PreTrainedTokenizerFast:
    """The tokenizer as an ordinary fast tokenizer of transformers.

    An unknown character becomes the pad token, which ``training.rendering`` refuses: the vocabulary has no other use
    for pad inside a text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel(VOCABULARY, unk_token=PAD))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        unk_token=PAD,
        additional_special_tokens=[USER, ASSISTANT, TOOL, HINT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
