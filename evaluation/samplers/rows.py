"""A key-value cache whose rows enter, leave and are compacted while the batch decodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

FIRST_COLUMNS = 64
"""Columns allocated beyond the prompt at first; the buffer doubles when full."""

States = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer."""


class RowLayer(DynamicLayer):
    """Keys and values of one layer: two buffers [max_rows, heads, capacity, head_dim], of which a corner is in use."""

    def __init__(self, owner: RowCache, buffers: tuple[torch.Tensor, torch.Tensor]) -> None:
        super().__init__()
        self.owner, self.buffers = owner, buffers

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new columns and returns views [rows, heads, columns, head_dim] of everything in use."""
        rows, begin = self.owner.rows, self.owner.columns
        end = begin + key_states.shape[-2]
        keys, values = self.buffers
        keys[:rows, :, begin:end] = key_states
        values[:rows, :, begin:end] = value_states
        return keys[:rows, :, :end], values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self.owner.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.columns + query_length, 0


class RowCache(Cache):
    """``rows`` sequences, right-aligned at column ``columns``; the next token of each goes to that column.

    Rotary positions are already in the keys, so where a row's columns lie does not matter: a new prompt is placed so
    that it ends where the others end, and leading columns that no row uses can be dropped.
    """

    def __init__(self, max_rows: int) -> None:
        self.stored: list[RowLayer] = []
        super().__init__(layers=[])
        self.max_rows = max_rows
        self.rows = 0
        self.columns = 0
        self.capacity = 0

    def place(self, prompts: Sequence[States], index: torch.Tensor, width: int) -> None:
        """Appends len(index) rows; row i copies sequence ``index[i]`` of each layer's [u, heads, width, head_dim].

        ``width`` must not exceed ``columns`` unless the cache is empty.
        """
        if self.rows == 0:
            self.columns = width
            self.reserve(width + FIRST_COLUMNS)
        if not self.stored:
            self.stored = [RowLayer(self, (self._like(keys), self._like(values))) for keys, values in prompts]
            self.layers = [*self.stored]
        begin, end = self.rows, self.rows + len(index)
        for layer, new in zip(self.stored, prompts, strict=True):
            for buffer, states in zip(layer.buffers, new, strict=True):
                buffer[begin:end, :, self.columns - width : self.columns] = states[index]
        self.rows = end

    def _like(self, states: torch.Tensor) -> torch.Tensor:
        # Zeros, not empty: an unused column is masked, but 0 times NaN would still be NaN.
        return states.new_zeros(self.max_rows, states.shape[1], self.capacity, states.shape[-1])

    def move(self, sources: torch.Tensor, holes: torch.Tensor, rows: int) -> None:
        """Copies rows ``sources`` over rows ``holes`` and keeps the first ``rows`` rows."""
        if len(holes):
            for layer in self.stored:
                for buffer in layer.buffers:
                    buffer[holes, :, : self.columns] = buffer[sources, :, : self.columns]
        self.rows = rows

    def drop_leading(self, count: int) -> None:
        """Forgets the first ``count`` columns of every row."""
        for layer in self.stored:
            for buffer in layer.buffers:
                buffer[: self.rows, :, : self.columns - count] = buffer[: self.rows, :, count : self.columns].clone()
        self.columns -= count

    def reserve(self, columns: int) -> None:
        """Makes room for so many columns, at least doubling."""
        if columns <= self.capacity:
            return
        self.capacity = max(columns, 2 * self.capacity)
        for layer in self.stored:
            keys, values = (self._like(buffer) for buffer in layer.buffers)
            for new, old in ((keys, layer.buffers[0]), (values, layer.buffers[1])):
                new[: self.rows, :, : self.columns] = old[: self.rows, :, : self.columns]
            layer.buffers = (keys, values)


def states_of(prefilled: DynamicCache) -> list[States]:
    """The keys and values of a prefilled cache, layer by layer. Raises ValueError for layers that hold others."""
    return [_states(layer) for layer in prefilled.layers]


def _states(layer: object) -> States:
    if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
        raise ValueError(f"HFSampler cannot decode from a cache layer of type {type(layer).__name__}")
    return layer.keys, layer.values
