"""Metrics and per-token values, added up over the blocks of a micro-batch."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor


class Records:
    """Sums and counts by metric name, and the kept values of ``tokens`` tokens."""

    def __init__(self, keep: frozenset[str], tokens: int, device: torch.device) -> None:
        self.keep = keep
        self.device = device
        self.tokens = tokens
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, float] = defaultdict(float)
        self._kept: dict[str, Tensor] = {}

    def wants(self, name: str) -> bool:
        """Whether the per-token values ``name`` were asked for."""
        return name in self.keep

    def mean(self, name: str, values: Tensor, tokens: Tensor) -> None:
        """A per-token metric: its sum and the number of tokens it is over."""
        self.add(name, values.sum(dtype=torch.float64), float(len(tokens)))

    def add(self, name: str, numerator: Tensor, denominator: float) -> None:
        """One part of a metric."""
        self.sums[name] = self.sums[name] + numerator if name in self.sums else numerator
        self.counts[name] += denominator

    def keep_values(self, name: str, values: Tensor, tokens: Tensor) -> None:
        """The values at index ``tokens``, if they were asked for."""
        if name not in self.keep:
            return
        if name not in self._kept:
            dtype = torch.promote_types(values.dtype, torch.float32)
            self._kept[name] = torch.full((self.tokens,), torch.nan, dtype=dtype, device=self.device)
        self._kept[name][tokens] = values.to(self._kept[name].dtype)

    def metrics(self) -> dict[str, tuple[float, float]]:
        """Name -> (numerator, denominator)."""
        numbers = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        return {name: (number, self.counts[name]) for name, number in zip(self.sums, numbers, strict=True)}

    def token_values(self) -> dict[str, Tensor]:
        """Every kept value, NaN where nothing was written."""
        blank = {name: torch.full((self.tokens,), torch.nan, device=self.device) for name in self.keep - {*self._kept}}
        return {**blank, **self._kept}
