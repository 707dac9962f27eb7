"""Seconds, tokens, FLOP and summed metrics of one update."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

FORWARD_FLOP = 2
"""FLOP a parameter and token of a forward pass (one multiplication, one addition)."""
INPUT_GRADIENT_FLOP = 2
"""FLOP a parameter and token of the gradient that goes on to the layer below; frozen parameters pass it on, too."""
WEIGHT_GRADIENT_FLOP = 2
"""FLOP a trained parameter and token of its own gradient."""
TIMES = ("t_generate", "t_verify", "t_teacher", "t_train", "t_sync")

Sums = dict[str, tuple[float, float]]
"""Metric -> (numerator, denominator)."""


@dataclass(slots=True)
class Account:
    """Sums over the optimiser steps and micro-batches of one update."""

    device: torch.device
    parameters: int
    """All, the head and frozen ones included."""
    trained_parameters: int
    """Those that learn: all of them, or an adapter's."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    cost: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    sums: Sums = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] += time.perf_counter() - start

    def drew(self, kind: str, prompt_tokens: int, tokens: int) -> None:
        """Charges generated tokens to ``kind`` and the forward passes of prompt and response."""
        self.cost[kind] += tokens
        self.cost["flop"] += FORWARD_FLOP * self.parameters * (prompt_tokens + tokens)

    def read(self, tokens: int, *, grad: bool, target: bool) -> None:
        """Charges the tokens that a view read; ``target``: it is not the one that learns."""
        flop = FORWARD_FLOP * self.parameters
        if grad:
            flop += INPUT_GRADIENT_FLOP * self.parameters + WEIGHT_GRADIENT_FLOP * self.trained_parameters
        self.cost["flop"] += flop * tokens
        self.cost["teacher_tokens"] += tokens if target else 0

    def add(self, sums: Mapping[str, tuple[float, float]]) -> None:
        add_sums(self.sums, sums)

    def metrics(self) -> dict[str, float | None]:
        return {name: top / bottom if bottom else None for name, (top, bottom) in self.sums.items()}


def add_sums(total: Sums, more: Mapping[str, tuple[float, float]]) -> None:
    for name, (top, bottom) in more.items():
        so_far = total.get(name, (0.0, 0.0))
        total[name] = (so_far[0] + top, so_far[1] + bottom)
