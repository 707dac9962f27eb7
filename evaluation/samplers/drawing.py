"""Drawing a token from logits: filters, inverse CDF, and counter-based uniforms."""

from __future__ import annotations

import numpy as np
import torch

from evaluation.samplers.base import SamplingParams

CHUNK_ELEMENTS = 1 << 24
"""Most entries (rows times vocabulary) of a float64 CDF held at once: 128 MiB."""


def uniforms(seed: int, count: int) -> np.ndarray:
    """The first ``count`` uniforms of a request, float64 in (0, 1).

    Entry p is the p-th 64-bit output of Philox4x64-10 keyed by ``seed`` (Salmon et al. 2011), cut to 48 bits and
    centred: (k + 1/2) / 2^48. It is a function of (seed, p) only, and never 0 or 1, so that u times a CDF's total
    stays strictly below the total in float64.
    """
    if not 0 <= seed < 1 << 128:
        raise ValueError(f"a sampling seed must lie in [0, 2^128), got {seed}")
    raw = np.random.Philox(key=seed).random_raw(count)
    return ((raw >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48


def kept(probabilities: torch.Tensor, params: SamplingParams) -> torch.Tensor | None:
    """Which ids may be drawn, bool [n, V]; None when nothing is filtered.

    top-k first (ties with the k-th kept), then top-p on the renormalised rest (the smallest set of likeliest ids whose
    mass reaches p), then min-p (at least ``min_p`` times the likeliest id's probability).
    """
    keep: torch.Tensor | None = None
    vocabulary = probabilities.shape[-1]
    if 0 < params.top_k < vocabulary:
        threshold = probabilities.topk(params.top_k, dim=-1).values[:, -1:]
        keep = probabilities >= threshold
    if params.top_p < 1:
        left = probabilities if keep is None else probabilities * keep
        descending, ids = left.sort(dim=-1, descending=True, stable=True)
        mass = descending.cumsum(dim=-1, dtype=torch.float64)
        before = mass - descending
        nucleus = before < params.top_p * mass[:, -1:]
        nucleus &= descending > 0
        keep = torch.zeros_like(nucleus).scatter_(-1, ids, nucleus)
    if params.min_p > 0:
        likely = probabilities >= params.min_p * probabilities.amax(dim=-1, keepdim=True)
        keep = likely if keep is None else keep & likely
    return keep


def draw(logits: torch.Tensor, uniform: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """One id a row and its log-probability.

    ``logits`` [n, V], ``uniform`` [n] float64 in (0, 1). Returns ids [n] int64 and log-probabilities [n] float32 under
    softmax(logits / temperature) on the full vocabulary (temperature 0: the argmax, under softmax(logits)).
    The id is the first one whose cumulated filtered mass, in the order of the ids, exceeds u times the total.
    """
    rows = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    if len(logits) <= rows:
        return _draw(logits, uniform, params)
    parts = [_draw(logits[i : i + rows], uniform[i : i + rows], params) for i in range(0, len(logits), rows)]
    return torch.cat([ids for ids, _ in parts]), torch.cat([logprobs for _, logprobs in parts])


def _draw(logits: torch.Tensor, uniform: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.float()
    if params.temperature == 0:
        ids = logits.argmax(dim=-1, keepdim=True)
        return ids[:, 0], logits.log_softmax(dim=-1).gather(-1, ids)[:, 0]
    logprobs = (logits / params.temperature).log_softmax(dim=-1)
    mass = logprobs.exp()
    keep = kept(mass, params)
    if keep is not None:
        mass = mass * keep
    cdf = mass.cumsum(dim=-1, dtype=torch.float64)
    # right=True: the first entry strictly above the target, so an id of zero mass is never drawn.
    ids = torch.searchsorted(cdf, uniform[:, None] * cdf[:, -1:], right=True)
    return ids[:, 0], logprobs.gather(-1, ids)[:, 0]
