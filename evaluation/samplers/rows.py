"""A key-value cache whose rows enter, leave and are compacted while the batch decodes."""

from __future__ import annotations

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

FIRST_COLUMNS = 64
"""Columns allocated beyond the prompt at first; the buffer doubles when full."""


class RowLayer(DynamicLayer):
    """Keys and values of one layer: buffers [max_rows, heads, capacity, head_dim], of which a corner is in use."""

    def __init__(self, owner: RowCache) -> None:
        super().__init__()
        self.owner = owner

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new columns and returns views [rows, heads, columns, head_dim] of everything in use."""
        rows, begin = self.owner.rows, self.owner.columns
        end = begin + key_states.shape[-2]
        self.keys[:rows, :, begin:end] = key_states
        self.values[:rows, :, begin:end] = value_states
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

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
        super().__init__(layers=[])
        self.max_rows = max_rows
        self.rows = 0
        self.columns = 0
        self.capacity = 0

    def place(self, prompts: DynamicCache, index: torch.Tensor, width: int) -> None:
        """Appends len(index) rows; row i copies sequence ``index[i]`` of ``prompts`` [u, heads, width, head_dim].

        ``width`` must not exceed ``columns`` unless the cache is empty.
        """
        if self.rows == 0:
            self.columns = width
            self.reserve(width + FIRST_COLUMNS)
        if not self.layers:
            self.layers = [self._allocate(layer) for layer in prompts.layers]
        begin, end = self.rows, self.rows + len(index)
        for layer, new in zip(self.layers, prompts.layers, strict=True):
            layer.keys[begin:end, :, self.columns - width : self.columns] = new.keys[index]
            layer.values[begin:end, :, self.columns - width : self.columns] = new.values[index]
        self.rows = end

    def _allocate(self, like: DynamicLayer) -> RowLayer:
        layer = RowLayer(self)
        _, heads, _, width = like.keys.shape
        # Zeros, not empty: an unused column is masked, but 0 times NaN would still be NaN.
        layer.keys = like.keys.new_zeros(self.max_rows, heads, self.capacity, width)
        layer.values = like.values.new_zeros(self.max_rows, heads, self.capacity, like.values.shape[-1])
        layer.device, layer.is_initialized = like.keys.device, True
        return layer

    def move(self, sources: torch.Tensor, holes: torch.Tensor, rows: int) -> None:
        """Copies rows ``sources`` over rows ``holes`` and keeps the first ``rows`` rows."""
        if len(holes):
            for layer in self.layers:
                layer.keys[holes, :, : self.columns] = layer.keys[sources, :, : self.columns]
                layer.values[holes, :, : self.columns] = layer.values[sources, :, : self.columns]
        self.rows = rows

    def drop_leading(self, count: int) -> None:
        """Forgets the first ``count`` columns of every row."""
        for layer in self.layers:
            for buffer in (layer.keys, layer.values):
                buffer[: self.rows, :, : self.columns - count] = buffer[: self.rows, :, count : self.columns].clone()
        self.columns -= count

    def reserve(self, columns: int) -> bool:
        """Makes room for so many columns, at least doubling; True when the buffers were replaced."""
        if columns <= self.capacity:
            return False
        self.capacity = max(columns, 2 * self.capacity)
        for layer in self.layers:
            for name in ("keys", "values"):
                old = getattr(layer, name)
                new = old.new_zeros(self.max_rows, old.shape[1], self.capacity, old.shape[-1])
                new[: self.rows, :, : self.columns] = old[: self.rows, :, : self.columns]
                setattr(layer, name, new)
        return True
