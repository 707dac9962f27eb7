"""What every Sampler adapter owes its callers."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from evaluation.samplers.base import Completion, Sampler, SampleRequest, SamplingParams
from evaluation.samplers.hf import HFSampler
from evaluation.samplers.scripted import ScriptedSampler
from tests.evaluation.samplers.models import PAD, VOCABULARY, decode, llama, qwen3, ragged_requests

END = 5
STOP = 9


def _pseudo_random_script(request: SampleRequest) -> list[int]:
    ids, state = [], zlib.crc32(repr((request.prompt_ids, request.seed)).encode())
    for _ in range(64):
        state = (1103515245 * state + 12345) % (1 << 31)
        ids.append((state >> 8) % VOCABULARY)
    return ids


def _samplers() -> dict[str, Sampler]:
    end = frozenset({END})
    return {
        "scripted": ScriptedSampler(_pseudo_random_script, end_ids=end, decode=decode),
        "hf-qwen3-eager": HFSampler(qwen3("eager"), end_ids=end, pad_id=PAD, max_rows=6, decode=decode),
        "hf-qwen3-sdpa": HFSampler(qwen3("sdpa"), end_ids=end, pad_id=PAD, max_rows=6, decode=decode),
        "hf-llama-sdpa": HFSampler(llama("sdpa"), end_ids=end, pad_id=PAD, max_rows=6, decode=decode),
        "hf-pad-is-end": HFSampler(qwen3("eager"), end_ids=end, pad_id=END, max_rows=6, decode=decode),
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


def _stopped(plain: Completion, ends: Callable[[tuple[int, ...]], bool]) -> tuple[tuple[int, ...], str]:
    """What is left of a completion that stops at the first prefix for which ``ends`` holds: by brute force."""
    for length in range(1, len(plain.token_ids) + 1):
        if ends(plain.token_ids[:length]):
            return plain.token_ids[:length], "stop"
    return plain.token_ids, plain.finish_reason


def test_sequences_of_ids_end_a_completion(sampler: Sampler) -> None:
    requests = ragged_requests(40)
    plain = sampler.sample(requests, PARAMS)
    pairs = [pair for c in plain for pair in zip(c.token_ids[2:], c.token_ids[3:], strict=False)]
    sequences = (*pairs[::20], plain[5].token_ids[:3], (1, 1, 1, 1))
    stopped = sampler.sample(requests, PARAMS.model_copy(update={"stop_sequences": sequences}))
    expected = [_stopped(c, lambda ids: any(ids[-len(s) :] == s for s in sequences)) for c in plain]
    assert [(c.token_ids, c.finish_reason) for c in stopped] == expected
    assert sum(c.token_ids != p.token_ids for c, p in zip(stopped, plain, strict=True)) >= 3
    assert all(len(c.logprobs) == len(c.token_ids) for c in stopped)


def test_stop_texts_end_a_completion_across_the_borders_of_its_tokens(sampler: Sampler) -> None:
    requests = ragged_requests(60)
    plain = sampler.sample(requests, PARAMS)
    stops = ("da", "ccb", "é")
    params = PARAMS.model_copy(update={"stop": stops})
    stopped = sampler.sample(requests, params)
    expected = [_stopped(c, lambda ids: any(stop in decode(ids) for stop in stops)) for c in plain]
    assert [(c.token_ids, c.finish_reason) for c in stopped] == expected
    inside, across = 0, 0
    for completion in stopped:
        text = decode(completion.token_ids)
        graded = params.graded(text)
        assert not any(stop in graded for stop in stops) and text.startswith(graded)
        if graded != text:
            found = next(stop for stop in stops if text.startswith(stop, len(graded)))
            inside += found in decode(completion.token_ids[-1:])
            across += found not in decode(completion.token_ids[-1:])
    assert inside >= 2 and across >= 5


def test_requests_of_one_call_may_each_have_their_own_parameters(sampler: Sampler) -> None:
    kinds = [
        None,
        SamplingParams(max_new_tokens=24, temperature=0.0),
        SamplingParams(max_new_tokens=9, temperature=0.6, top_k=5),
        SamplingParams(max_new_tokens=30, temperature=1.5, top_p=0.8, stop_token_ids=(STOP,)),
        SamplingParams(max_new_tokens=24, temperature=1.0, min_p=0.05, stop=("da",)),
        SamplingParams(max_new_tokens=17, stop_sequences=((3,), (7, 8))),
    ]
    requests = [replace(r, params=kinds[i % len(kinds)]) for i, r in enumerate(ragged_requests(48))]
    together = sampler.sample(requests, PARAMS)
    for kind in kinds:
        some = [index for index, request in enumerate(requests) if request.params == kind]
        own = sampler.sample([replace(requests[index], params=None) for index in some], kind or PARAMS)
        assert [together[index].token_ids for index in some] == [completion.token_ids for completion in own]
        assert [together[index].finish_reason for index in some] == [completion.finish_reason for completion in own]
        for index, completion in zip(some, own, strict=True):
            assert together[index].logprobs == pytest.approx(completion.logprobs, abs=1e-5)
    assert max(len(c.token_ids) for c in together) > 24, "the longest limit is a request's own"


@pytest.mark.parametrize("empty", [{"stop": ("",)}, {"stop_sequences": ((),)}])
def test_an_empty_stop_is_refused(empty: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="an empty one would end every completion at once"):
        SamplingParams(max_new_tokens=1, **empty)


@pytest.mark.parametrize("kind", ["scripted", "hf"])
def test_stop_texts_without_a_decoder_are_refused(kind: str) -> None:
    samplers: dict[str, Sampler] = {
        "scripted": ScriptedSampler(_pseudo_random_script),
        "hf": HFSampler(qwen3("eager"), end_ids=frozenset(), pad_id=PAD, max_rows=6),
    }
    with pytest.raises(ValueError, match="give it decode, or use stop_sequences"):
        samplers[kind].sample(ragged_requests(1), PARAMS.model_copy(update={"stop": ("a",)}))


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
