"""When a completion ends by itself: end ids, sequences of ids, and texts across the borders of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaluation.samplers.base import SamplingParams

Decode = Callable[[Sequence[int]], str]
"""Ids of a completion to text."""

MARGIN = 8
"""Tokens looked at before a stop text: a token in mid-character or at the front of a text may decode differently."""


class Stops:
    """The ends of completions under one SamplingParams.

    Raises ValueError for stop texts without ``decode``.
    """

    def __init__(self, params: SamplingParams, end_ids: frozenset[int], decode: Decode | None) -> None:
        if params.stop and decode is None:
            raise ValueError("stop texts need a sampler that can decode: give it decode, or use stop_sequences")
        self.ids = end_ids | set(params.stop_token_ids)
        self._sequences, self._texts, self._decode = params.stop_sequences, params.stop, decode
        # A token that shows holds at least one byte, so a text of so many bytes lies within so many tokens.
        within = [len(sequence) for sequence in self._sequences]
        within += [len(text.encode()) + MARGIN for text in self._texts]
        self.window = max(within, default=0)
        """Last tokens that decide whether a sequence or a text has just ended; 0 where only single ids end."""

    def length(self, ids: Sequence[int], begin: int = 0) -> int | None:
        """How many of ``ids`` the completion keeps: to the end of its first stop, looked for after ``begin`` tokens.

        None where there is no stop.
        """
        for length in range(begin + 1, len(ids) + 1):
            if ids[length - 1] in self.ids or (
                self.window and self._just_ended(ids[max(0, length - self.window) : length])
            ):
                return length
        return None

    def _just_ended(self, tail: Sequence[int]) -> bool:
        if any(tuple(tail[-len(sequence) :]) == sequence for sequence in self._sequences):
            return True
        if not self._texts or self._decode is None:
            return False
        text = self._decode(tail)
        return any(stop in text for stop in self._texts)
