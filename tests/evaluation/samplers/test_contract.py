"""What every Sampler adapter owes its callers."""

from __future__ import annotations

import math
import zlib

import pytest

from evaluation.samplers.base import Sampler, SampleRequest, SamplingParams
from evaluation.samplers.hf import HFSampler
from evaluation.samplers.scripted import ScriptedSampler
from tests.evaluation.samplers.models import PAD, VOCABULARY, llama, qwen3, ragged_requests

END = 5
STOP = 9


def _pseudo_random_script(request: SampleRequest) -> list[int]:
    ids, state = [], zlib.crc32(repr(request).encode())
    for _ in range(64):
        state = (1103515245 * state + 12345) % (1 << 31)
        ids.append((state >> 8) % VOCABULARY)
    return ids


def _samplers() -> dict[str, Sampler]:
    end = frozenset({END})
    return {
        "scripted": ScriptedSampler(_pseudo_random_script, end_ids=end),
        "hf-qwen3-eager": HFSampler(qwen3("eager"), end_ids=end, pad_id=PAD, max_rows=6),
        "hf-qwen3-sdpa": HFSampler(qwen3("sdpa"), end_ids=end, pad_id=PAD, max_rows=6),
        "hf-llama-sdpa": HFSampler(llama("sdpa"), end_ids=end, pad_id=PAD, max_rows=6),
        "hf-pad-is-end": HFSampler(qwen3("eager"), end_ids=end, pad_id=END, max_rows=6),
    }


@pytest.fixture(scope="module")
def samplers() -> dict[str, Sampler]:
    return _samplers()


@pytest.fixture(params=["scripted", "hf-qwen3-eager", "hf-qwen3-sdpa", "hf-llama-sdpa", "hf-pad-is-end"])
def sampler(request: pytest.FixtureRequest, samplers: dict[str, Sampler]) -> Sampler:
    return samplers[request.param]


PARAMS = SamplingParams(max_new_tokens=24, temperature=1.0)


def test_completions_are_cut_at_the_first_end_id_or_at_the_limit(sampler: Sampler) -> None:
    completions = sampler.sample(ragged_requests(40), PARAMS)
    assert {c.finish_reason for c in completions} == {"stop", "length"}, "the case must exercise both endings"
    for completion in completions:
        ids = completion.token_ids
        assert len(completion.logprobs) == len(ids)
        assert END not in ids[:-1]
        if completion.finish_reason == "stop":
            assert ids[-1] == END
        else:
            assert ids[-1] != END and len(ids) == PARAMS.max_new_tokens
        assert all(type(i) is int and 0 <= i < VOCABULARY for i in ids)
        assert all(type(v) is float and v <= 0 and math.isfinite(v) for v in completion.logprobs)


def test_stop_token_ids_end_a_completion_too(sampler: Sampler) -> None:
    requests = ragged_requests(40)
    plain = sampler.sample(requests, PARAMS)
    stopped = sampler.sample(requests, PARAMS.model_copy(update={"stop_token_ids": (STOP,)}))
    assert any(STOP in c.token_ids for c in plain)
    for before, after in zip(plain, stopped, strict=True):
        cut = before.token_ids.index(STOP) + 1 if STOP in before.token_ids else len(before.token_ids)
        assert after.token_ids == before.token_ids[:cut]
        assert after.finish_reason == ("stop" if after.token_ids[-1] in (END, STOP) else "length")


def test_results_come_in_the_order_of_the_requests_and_do_not_depend_on_the_batch(sampler: Sampler) -> None:
    requests = ragged_requests(20)
    together = sampler.sample(requests, PARAMS)
    reversed_ = sampler.sample(requests[::-1], PARAMS)[::-1]
    alone = [sampler.sample([request], PARAMS)[0] for request in requests]
    assert [c.token_ids for c in together] == [c.token_ids for c in reversed_] == [c.token_ids for c in alone]
    assert len({c.token_ids for c in together}) > 10
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_the_same_call_gives_the_same_bits(sampler: Sampler) -> None:
    requests = ragged_requests(20)
    assert sampler.sample(requests, PARAMS) == sampler.sample(requests, PARAMS)


def test_draws_depend_on_the_seed(sampler: Sampler) -> None:
    prompt = (3, 4, 6)
    completions = sampler.sample([SampleRequest(prompt, seed) for seed in range(12)], PARAMS)
    assert len({c.token_ids for c in completions}) > 6


def test_a_shorter_limit_gives_a_prefix(sampler: Sampler) -> None:
    requests = ragged_requests(15)
    long = sampler.sample(requests, PARAMS)
    short = sampler.sample(requests, PARAMS.model_copy(update={"max_new_tokens": 4}))
    assert [c.token_ids for c in short] == [c.token_ids[:4] for c in long]


def test_no_requests_give_no_completions(sampler: Sampler) -> None:
    assert sampler.sample([], PARAMS) == []


def test_an_empty_prompt_is_refused(sampler: Sampler) -> None:
    with pytest.raises(ValueError, match="request 1: the prompt is empty"):
        sampler.sample([SampleRequest((3,), 0), SampleRequest((), 0)], PARAMS)
