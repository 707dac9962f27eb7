"""What a context is built from, and what it is: one row of a batch, and the privileged text of its prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluation.problems import Grade, Problem
from training.contexts.language import Block, ContextLanguage


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One row of a batch: its problem and, where it is a rollout, what was drawn and what came of it.

    Rows of one ``group`` answer the same problem in the same update; equal problems that were drawn twice into a batch
    are two groups.
    """

    problem: Problem
    group: int
    text: str | None = None
    """The response as text; None for rows without a rollout."""
    token_ids: tuple[int, ...] = ()
    reward: float | None = None
    """None where the response could not be graded."""
    grade: Grade | None = None

    @property
    def failed(self) -> bool:
        return self.grade is not None and self.grade.verdict == "fail"

    @property
    def feedback(self) -> str | None:
        """What the environment says of a failed attempt; None where it says nothing or could not judge."""
        said = (self.grade.feedback or "").strip() if self.grade is not None and self.failed else ""
        return said or None


@dataclass(frozen=True, slots=True)
class PrivilegedContext:
    """What one row's prompt gains. ``text`` None leaves the prompt as the student sees it."""

    text: str | None
    source: str | None = None
    """Id of the problem that the text comes from."""
    cut: bool = False
    """Whether the text was cut at its end to fit."""
    turn: str | None = None
    """The language's template of the user's turn for it; None takes the model's."""


class ContextTokens(Protocol):
    """What contexts need of a tokenizer (``training.rendering.Renderer``)."""

    def prefix(self, text: str, count: int) -> str:
        """The longest beginning of ``text`` that takes at most ``count`` tokens and splits no character."""
        ...

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        ...

    def clean(self, text: str) -> str:
        """``text`` without what would be read as a special token, and without characters that have no token."""
        ...


def context_of(blocks: Sequence[Block], language: ContextLanguage, source: str) -> PrivilegedContext:
    """The context that shows ``blocks``; without any, the plain question."""
    return PrivilegedContext(language.compose(blocks), source, turn=language.turn(blocks))


_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_THOUGHT_END = "</think>"


def strip_thinking(text: str) -> str:
    """``text`` without its thinking: closed blocks, one that the prompt opened, and one cut off before its end."""
    without = _THOUGHT.sub("", text)
    # A chat template may have opened the block in the prompt, so that the response only closes it.
    return without.rpartition(_THOUGHT_END)[2].strip()
