"""The decode loop of ``evaluation.samplers.hf``: a batch that rows leave when they end and join when there is room."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache

from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from evaluation.samplers.drawing import uniforms
from evaluation.samplers.kinds import Kinds
from evaluation.samplers.rows import RowCache, States, states_of
from evaluation.samplers.stopping import Decode
from evaluation.samplers.waiting import Waiting

STEPS_BETWEEN_CHECKS = {"cpu": 1, "cuda": 4}
"""Decode steps between two looks at which rows have ended (each look waits for the accelerator)."""


def _cache_keyword(model: Any) -> str:
    """transformers renamed ``past_key_values`` to ``cache`` within the versions supported here."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prefilled prompt that requests still wait for: its keys and values, layer by layer, and its last logits."""

    ids: tuple[int, ...]
    states: list[States]
    logits: torch.Tensor


class Decoding:
    """One call of ``sample``.

    Per-row state lives on the device for rows 0..n-1 of the cache (``cursor``: flat index of the row's next entry in
    the output buffers; ``position``: of its next token; ``token``: its last token; ``ended``) and, for what needs no
    look at the device, on the host (``slot``, ``start`` column, ``born`` step, ``kind`` of its parameters, ``stopped``:
    length at which a sequence or text ended it, else 0).
    """

    def __init__(
        self,
        model: nn.Module,
        requests: Sequence[SampleRequest],
        params: SamplingParams,
        *,
        end_ids: frozenset[int],
        pad_id: int,
        max_rows: int,
        decode: Decode | None,
    ) -> None:
        self.model: Any = model
        self.requests, self.pad_id = requests, pad_id
        self.device: torch.device = next(model.parameters()).device
        self.keyword = _cache_keyword(model)
        embeddings: Any = self.model.get_input_embeddings
        vocabulary = embeddings().num_embeddings
        self.kinds = Kinds(requests, params, end_ids=end_ids, decode=decode, vocabulary=vocabulary, device=self.device)
        self.length = int(self.kinds.limits.max())
        self.waiting = Waiting(requests)
        self.prompt: _Prompt | None = None
        self.results: list[Completion | None] = [None] * len(requests)

        self.size, self.step = min(max_rows, len(requests)), 0
        self.cache = RowCache(self.size)
        self.check_every = STEPS_BETWEEN_CHECKS.get(self.device.type, 1)
        self._allocate(self.size, self.length)

    def _allocate(self, size: int, length: int) -> None:
        device, config = self.device, self.model.config
        self.uniforms = torch.empty(size * length, dtype=torch.float64, device=device)
        self.tokens = torch.zeros(size * length, dtype=torch.int64, device=device)
        self.logprobs = torch.zeros(size * length, dtype=torch.float32, device=device)
        self.cursor, self.position, self.token = torch.zeros(3, size, dtype=torch.int64, device=device)
        self.ended = torch.zeros(size, dtype=torch.bool, device=device)
        self.slot, self.start, self.born, self.request, self.kind, self.stopped = np.zeros((6, size), dtype=np.int64)
        self.free_slots = list(range(size))[::-1]
        self.attention = getattr(config, "_attn_implementation", None)
        layers = set(getattr(config, "layer_types", None) or {"full_attention"})
        # A ready 4D mask skips the model's own mask code, which waits for the accelerator at every step.
        windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        self.own_mask = self.attention in ("eager", "sdpa") and layers == {"full_attention"} and not windowed
        self.mask: torch.Tensor | None = None

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> list[Completion]:
        while self.waiting or self.cache.rows:
            free = self.size - self.cache.rows
            if self.waiting and free >= min(len(self.waiting), max(1, self.size // 4)):
                self._admit(free)
            else:
                self._decode()
            self._retire()
        return [result for result in self.results if result is not None]

    def _admit(self, free: int) -> None:
        """Prefills waiting requests, each distinct prompt once, and draws their first tokens."""
        free -= self._admit_prefilled(free)
        if not self.waiting or not free:
            return
        chosen, prompts = self.waiting.take(free)
        width = len(prompts[0])
        ids = torch.full((len(prompts), width), self.pad_id)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        real = torch.arange(width) >= width - lengths[:, None]
        prefilled = DynamicCache()
        logits = self.model(
            input_ids=ids.to(self.device),
            attention_mask=None if bool(real.all()) else real.to(self.device),
            position_ids=(real.cumsum(-1) - 1).clamp(min=0).to(self.device),
            use_cache=True,
            logits_to_keep=1,
            **{self.keyword: prefilled},
        ).logits[:, -1]

        number = {prompt: row for row, prompt in enumerate(prompts)}
        index = torch.tensor([number[self.requests[i].prompt_ids] for i in chosen])
        states = states_of(prefilled)
        self._place(chosen, states, index, lengths[index], width, logits)
        last = prompts[-1]
        if self.waiting.prompt == last:
            row, columns = slice(len(prompts) - 1, len(prompts)), slice(width - len(last), width)
            kept = [(keys[row, :, columns].clone(), values[row, :, columns].clone()) for keys, values in states]
            self.prompt = _Prompt(last, kept, logits[row].clone())

    def _admit_prefilled(self, free: int) -> int:
        """Lets requests enter whose prompt an earlier prefill has left; how many."""
        prompt = self.prompt
        if prompt is None:
            return 0
        chosen = self.waiting.take_same(prompt.ids, free)
        if self.waiting.prompt != prompt.ids:
            self.prompt = None
        index, width = torch.zeros(len(chosen), dtype=torch.int64), len(prompt.ids)
        self._place(chosen, prompt.states, index, torch.full_like(index, width), width, prompt.logits)
        return len(chosen)

    def _place(
        self,
        chosen: list[int],
        states: list[States],
        index: torch.Tensor,
        lengths: torch.Tensor,
        width: int,
        logits: torch.Tensor,
    ) -> None:
        """Request i of ``chosen`` becomes a row behind prefilled prompt ``index[i]``, and draws its first token."""
        first, at = self.cache.rows, index.to(self.device)
        self.cache.place(states, at, width)
        self._enter(chosen, lengths, first)
        self._draw(logits[at], first)

    def _enter(self, chosen: list[int], lengths: torch.Tensor, first: int) -> None:
        """Sets the state of the new rows first, first+1, …"""
        length = self.length
        rows = slice(first, first + len(chosen))
        slots = np.array([self.free_slots.pop() for _ in chosen])
        self.kind[rows], self.stopped[rows] = self.kinds.of_request[chosen], 0
        self.slot[rows], self.request[rows], self.born[rows] = slots, chosen, self.step
        self.start[rows] = self.cache.columns - lengths.numpy()
        self.cursor[rows] = torch.from_numpy(slots * length).to(self.device)
        self.position[rows] = lengths.to(self.device)
        self.ended[rows] = False
        if any(self.kinds.params[kind].temperature > 0 for kind in np.unique(self.kind[rows])):
            drawn = np.stack([uniforms(self.requests[i].seed, length) for i in chosen])
            self.uniforms.view(-1, length)[torch.from_numpy(slots).to(self.device)] = torch.from_numpy(drawn).to(
                self.device
            )
        self._set_mask(rows)

    def _set_mask(self, rows: slice) -> None:
        """Columns at or after a row's start are its own, now and later, so the mask is written once a row."""
        if self.mask is None or self.mask.shape[-1] != self.cache.capacity:
            self.mask = torch.zeros(self.size, 1, 1, self.cache.capacity, dtype=torch.bool, device=self.device)
            if self.own_mask and self.attention == "eager":
                self.mask = self.mask.to(self.model.dtype)
            rows = slice(0, self.cache.rows)
        columns = torch.arange(self.cache.capacity, device=self.device)
        own = columns >= torch.from_numpy(self.start[rows]).to(self.device)[:, None]
        if self.mask.dtype == torch.bool:
            self.mask[rows, 0, 0] = own
        else:
            self.mask[rows, 0, 0] = torch.where(own, 0.0, torch.finfo(self.mask.dtype).min)

    def _decode(self) -> None:
        """One token for every row."""
        rows = self.cache.rows
        self._make_room()
        self.step += 1
        output = self.model(
            input_ids=self.token[:rows, None],
            attention_mask=self._attention_mask(rows, self.cache.columns + 1),
            position_ids=self.position[:rows, None],
            use_cache=True,
            logits_to_keep=1,
            **{self.keyword: self.cache},
        )
        self.cache.columns += 1
        self.position[:rows] += 1
        self._draw(output.logits[:, -1], 0)

    def _attention_mask(self, rows: int, columns: int) -> torch.Tensor | None:
        if not self.start[:rows].any() and self.attention != "eager":
            return None
        assert self.mask is not None
        mask = self.mask[:rows, :, :, :columns]
        return mask if self.own_mask else mask[:, 0, 0]

    def _make_room(self) -> None:
        if self.cache.columns < self.cache.capacity:
            return
        rows = self.cache.rows
        unused = int(self.start[:rows].min())
        if unused * 4 >= self.cache.columns:
            self.cache.drop_leading(unused)
            self.start[:rows] -= unused
        self.cache.reserve(self.cache.columns + 1)
        self._set_mask(slice(0, rows))

    def _draw(self, logits: torch.Tensor, first: int) -> None:
        """Draws the next token of rows ``first``…"""
        rows = slice(first, self.cache.rows)
        cursor = self.cursor[rows]
        ids, logprobs, ends = self.kinds.draw(logits, self.uniforms[cursor], self.kind[rows])
        self.tokens[cursor] = ids
        self.logprobs[cursor] = logprobs
        self.token[rows] = ids
        self.ended[rows] |= ends
        cursor += 1

    # --- leaving --------------------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Collects ended rows and fills their places with the last rows of the batch."""
        rows = self.cache.rows
        full = self.step - self.born[:rows] + 1 >= self.kinds.limits[self.kind[:rows]]
        if not full.any() and self.step % self.check_every:
            return
        self._look_for_stops(rows)
        ended = full | self.ended[:rows].cpu().numpy() | (self.stopped[:rows] > 0)
        if not ended.any():
            return
        self._collect(np.flatnonzero(ended))
        left = rows - int(ended.sum())
        holes = np.flatnonzero(ended[:left])
        sources = left + np.flatnonzero(~ended[left:])
        for host in (self.slot, self.request, self.start, self.born, self.kind, self.stopped):
            host[holes] = host[sources]
        device_holes = torch.from_numpy(holes).to(self.device)
        device_sources = torch.from_numpy(sources).to(self.device)
        if len(holes):
            assert self.mask is not None
            for state in (self.cursor, self.position, self.token, self.ended, self.mask):
                state[device_holes] = state[device_sources]
        self.cache.move(device_sources, device_holes, left)

    def _look_for_stops(self, rows: int) -> None:
        """Notes which rows a sequence of ids or a text has ended since the last look."""
        watched = np.flatnonzero(self.kinds.windows[self.kind[:rows]])
        if not len(watched):
            return
        drawn = self.step - self.born[watched] + 1
        width = int(self.kinds.windows[self.kind[watched]].max()) + self.check_every
        begins = np.maximum(drawn - width, 0)
        places = self.slot[watched] * self.length + begins
        columns = np.minimum(places[:, None] + np.arange(width), self.tokens.numel() - 1)
        tails = self.tokens[torch.from_numpy(columns).to(self.device)].cpu().numpy()
        for row, count, begin, tail in zip(watched, drawn, begins, tails, strict=True):
            ids = tail[: count - begin].tolist()
            length = self.kinds.stops[self.kind[row]].length(ids, max(0, len(ids) - self.check_every))
            self.stopped[row] = 0 if length is None else begin + length

    def _collect(self, rows: np.ndarray) -> None:
        length = self.length
        drawn = self.step - self.born[rows] + 1
        slots = torch.from_numpy(self.slot[rows]).to(self.device)
        widest = int(drawn.max())
        tokens = self.tokens.view(-1, length)[:, :widest][slots].cpu().numpy()
        logprobs = self.logprobs.view(-1, length)[:, :widest][slots].cpu().numpy()
        ends = self.kinds.is_end[self.kind[rows][:, None], tokens] & (np.arange(widest) < drawn[:, None])
        at_stop = np.arange(widest) + 1 == self.stopped[rows][:, None]
        for row, count, end, ids, values in zip(rows, drawn, ends | at_stop, tokens, logprobs, strict=True):
            stopped = bool(end.any())
            kept = int(end.argmax()) + 1 if stopped else int(count)
            self.results[self.request[row]] = Completion(
                tuple(ids[:kept].tolist()), tuple(values[:kept].tolist()), "stop" if stopped else "length"
            )
            self.free_slots.append(int(self.slot[row]))
