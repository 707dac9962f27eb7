"""The requests of one call that are not in the batch yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from evaluation.samplers.base import SampleRequest

PREFILL_TOKENS = 16_384
"""Most prompt tokens (padding included) of one prefill; longer queues are prefilled in pieces."""


class Waiting:
    """Longest prompt first, equal prompts together: whoever enters later fits left of where the others stand."""

    def __init__(self, requests: Sequence[SampleRequest]) -> None:
        self._prompts = [request.prompt_ids for request in requests]
        self._queue = deque(sorted(range(len(requests)), key=lambda i: (-len(self._prompts[i]), self._prompts[i], i)))

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def prompt(self) -> tuple[int, ...] | None:
        """The prompt of the next request."""
        return self._prompts[self._queue[0]] if self._queue else None

    def take_same(self, prompt: tuple[int, ...], free: int) -> list[int]:
        """The next requests, at most ``free``, that have this prompt."""
        chosen: list[int] = []
        while len(chosen) < free and self.prompt == prompt:
            chosen.append(self._queue.popleft())
        return chosen

    def take(self, free: int) -> tuple[list[int], list[tuple[int, ...]]]:
        """As many requests as fit, and their distinct prompts, the longest first."""
        chosen: list[int] = []
        prompts: dict[tuple[int, ...], None] = {}
        while len(chosen) < free and (prompt := self.prompt) is not None:
            width = len(next(iter(prompts), prompt))
            if prompts and prompt not in prompts and (len(prompts) + 1) * width > PREFILL_TOKENS:
                break
            prompts[prompt] = None
            chosen.append(self._queue.popleft())
        return chosen, list(prompts)
