"""Requests of one call that are drawn in different ways, side by side in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from evaluation.samplers.base import SampleRequest, SamplingParams
from evaluation.samplers.drawing import draw
from evaluation.samplers.stopping import Decode, Stops


class Kinds:
    """The distinct parameters of a call's requests, counted from 0; most calls have one kind."""

    def __init__(
        self,
        requests: Sequence[SampleRequest],
        params: SamplingParams,
        *,
        end_ids: frozenset[int],
        decode: Decode | None,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        numbers: dict[SamplingParams, int] = {}
        self.of_request = np.array([numbers.setdefault(r.params or params, len(numbers)) for r in requests])
        self.params = [*numbers]
        self.stops = [Stops(each, end_ids, decode) for each in self.params]
        self.limits = np.array([each.max_new_tokens for each in self.params])
        self.windows = np.array([stops.window for stops in self.stops])
        ends = [sorted(stops.ids) for stops in self.stops]
        width = 1 + max(vocabulary - 1, *(i for each in ends for i in each), 0)
        self.is_end = np.zeros((len(ends), width), dtype=bool)
        for row, each in zip(self.is_end, ends, strict=True):
            row[each] = True
        self._is_end = torch.from_numpy(self.is_end).to(device)

    def draw(
        self, logits: torch.Tensor, uniform: torch.Tensor, kinds: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One id a row, its log-probability, and whether it is an end id; row i is of kind ``kinds[i]``.

        Rows are drawn one by one in all but name: neighbours of another kind change nothing.
        """
        present = np.unique(kinds)
        if len(present) == 1:
            ids, logprobs = draw(logits, uniform, self.params[present[0]])
            return ids, logprobs, self._is_end[int(present[0])][ids]
        ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        logprobs = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        for kind in present:
            rows = torch.from_numpy(np.flatnonzero(kinds == kind)).to(logits.device)
            ids[rows], logprobs[rows] = draw(logits[rows], uniform[rows], self.params[kind])
        return ids, logprobs, self._is_end[torch.from_numpy(kinds).to(logits.device), ids]
