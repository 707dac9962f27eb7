"""Filters, inverse CDF and uniforms against transformers' own filters, brute force and known constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from evaluation.samplers import drawing
from evaluation.samplers.base import SamplingParams
from evaluation.samplers.drawing import draw, kept, uniforms


def _params(**changes: Any) -> SamplingParams:
    return SamplingParams(max_new_tokens=1, **changes)


def _kept(probabilities: torch.Tensor, **changes: Any) -> list[list[bool]]:
    keep = kept(probabilities, _params(**changes))
    assert keep is not None
    return keep.tolist()


def test_uniforms_are_a_function_of_seed_and_position_only() -> None:
    long = uniforms(42, 1000)
    assert np.array_equal(uniforms(42, 7), long[:7])
    assert not np.array_equal(uniforms(43, 1000), long)
    assert long.min() > 0 and long.max() < 1
    # Jumping straight to block 100 of the counter gives the same draws: there is no hidden state.
    raw = np.random.Philox(key=42).advance(100).random_raw(4)
    assert np.array_equal(((raw >> np.uint64(16)) + 0.5) / 2.0**48, long[400:404])


def test_uniforms_are_uniform_and_independent_across_neighbouring_seeds() -> None:
    draws = np.stack([uniforms(seed, 200) for seed in range(200)])
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 0.01
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("seed", [-1, 1 << 128])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="2\\^128"):
        uniforms(seed, 1)


@pytest.mark.parametrize(
    "params", [dict(top_k=5), dict(top_p=0.7), dict(min_p=0.1), dict(top_k=9, top_p=0.6, min_p=0.05)]
)
def test_filters_keep_what_the_filters_of_transformers_keep(params: dict[str, Any]) -> None:
    logits = torch.randn(200, 30, generator=torch.Generator().manual_seed(0)) * 2
    expected = logits
    warpers: Any = (("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper), ("min_p", MinPLogitsWarper))
    for name, warper in warpers:
        if name in params:
            expected = warper(params[name])(torch.zeros(200, 1, dtype=torch.long), expected)
    assert _kept(logits.softmax(-1), **params) == expected.isfinite().tolist()


def test_filters_by_hand() -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    assert kept(probabilities, _params()) is None
    assert _kept(probabilities, top_p=0.65) == [[True, True, False, False]]
    # top-k first: the rest renormalises to 4/7, 3/7, so 0.5 needs only the first.
    assert _kept(probabilities, top_k=2, top_p=0.5) == [[True, False, False, False]]
    assert _kept(probabilities, min_p=0.5) == [[True, True, True, False]]
    assert _kept(probabilities, top_p=1e-9) == [[True, False, False, False]]


def test_the_inverse_cdf_by_hand() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.0, 0.25]]).log()
    for uniform, expected in ((0.01, 0), (0.499, 0), (0.501, 1), (0.749, 1), (0.751, 3), (1 - 2.0**-49, 3)):
        ids, logprobs = draw(logits, torch.tensor([uniform], dtype=torch.float64), _params())
        assert ids.item() == expected
        assert logprobs.item() == pytest.approx(math.log([0.5, 0.25, 0, 0.25][expected]), abs=1e-6)


def test_log_probabilities_are_at_the_sampling_temperature_on_the_full_vocabulary() -> None:
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(1))
    uniform = torch.from_numpy(uniforms(0, 50))
    for temperature in (0.5, 1.0, 1.7):
        ids, logprobs = draw(logits, uniform, _params(temperature=temperature, top_k=3, top_p=0.8))
        reference = (logits.double() / temperature).log_softmax(-1).gather(-1, ids[:, None])[:, 0]
        assert torch.allclose(logprobs.double(), reference, atol=1e-5)


def test_greedy_takes_the_argmax_and_reports_it_under_temperature_one() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    ids, logprobs = draw(logits, torch.tensor([0.999], dtype=torch.float64), _params(temperature=0.0))
    assert ids.tolist() == [1]
    assert logprobs.item() == pytest.approx(2 - math.log(1 + math.e + math.e**2), abs=1e-6)


def test_drawn_frequencies_follow_the_filtered_distribution() -> None:
    logits = torch.tensor([0.3, -1.0, 1.2, 0.1, 0.8]).expand(20_000, 5)
    uniform = torch.from_numpy(uniforms(3, 20_000))
    ids, _ = draw(logits, uniform, _params(temperature=0.7, top_k=4))
    expected = (logits[0].double() / 0.7).softmax(-1)
    expected[1] = 0
    expected /= expected.sum()
    counts = torch.bincount(ids, minlength=5).numpy()
    assert counts[1] == 0
    used = [0, 2, 3, 4]
    assert stats.chisquare(counts[used], expected.numpy()[used] * 20_000).pvalue > 0.01


def test_row_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(11, 20, generator=torch.Generator().manual_seed(2))
    uniform = torch.from_numpy(uniforms(5, 11))
    whole = draw(logits, uniform, _params(top_p=0.9))
    monkeypatch.setattr(drawing, "CHUNK_ELEMENTS", 60)
    chunked = draw(logits, uniform, _params(top_p=0.9))
    assert torch.equal(whole[0], chunked[0]) and torch.equal(whole[1], chunked[1])


def test_extreme_logits_are_drawn_without_nan() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [float("-inf"), 0.0, float("-inf")]])
    ids, logprobs = draw(logits, torch.tensor([0.999999, 0.5], dtype=torch.float64), _params(top_p=0.9, min_p=0.1))
    assert ids.tolist() == [0, 1]
    assert logprobs.tolist() == [0.0, 0.0]
