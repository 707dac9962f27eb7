"""Token ids as pieces of text that can be joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BROKEN = "\ufffd"
"""What a decoder writes for bytes that are no whole character yet."""
LONGEST_CHARACTER = 4
"""Bytes of the longest UTF-8 character, so the most tokens that share one."""


def token_pieces(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """One piece a token; joined they are the decoded text, special tokens included.

    A token that ends inside a character has "", and the token that completes the character has all of it. Each piece
    is decoded behind the one before, since some decoders drop the space of a text's first token.
    """
    pieces: list[str] = []
    before, start = 0, 0
    for end in range(1, len(ids) + 1):
        piece = _behind(tokenizer, ids[before:start], ids[start:end])
        if piece.endswith(BROKEN) and end - start < LONGEST_CHARACTER and end < len(ids):
            pieces.append("")
            continue
        pieces.append(piece)
        before, start = start, end
    return pieces


class Vocabulary:
    """Single tokens as text, each decoded once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, anchor: int) -> None:
        """``anchor`` is a token that stands before each, so that spaces at the beginning are kept."""
        self._tokenizer = tokenizer
        self._anchor = anchor
        self._known: dict[int, str] = {}

    def texts(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        """The texts of rows of ids; a token that is part of a character, in the tokenizer's own notation."""
        return [[self._text(token) for token in row] for row in rows]

    def _text(self, token: int) -> str:
        if token not in self._known:
            text = _behind(self._tokenizer, [self._anchor], [token])
            if BROKEN in text or not text:
                text = str(self._tokenizer.convert_ids_to_tokens(token))
            self._known[token] = text
        return self._known[token]


def _behind(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], ids: Sequence[int]) -> str:
    return whole_text(tokenizer, [*before, *ids])[len(whole_text(tokenizer, before)) :]


def whole_text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ids with its special tokens."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
