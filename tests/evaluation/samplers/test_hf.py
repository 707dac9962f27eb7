"""HFSampler against transformers' generate and against plain full forwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evaluation.samplers import decoding, waiting
from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from evaluation.samplers.drawing import uniforms
from evaluation.samplers.hf import HFSampler
from tests.evaluation.samplers.models import PAD, VOCABULARY, decode, llama, qwen3, ragged_requests

END = 5
GREEDY = SamplingParams(max_new_tokens=24, temperature=0.0)


def _sampler(model: Any, max_rows: int = 8, ends: frozenset[int] = frozenset({END})) -> HFSampler:
    return HFSampler(model, end_ids=ends, pad_id=PAD, max_rows=max_rows)


@torch.no_grad()
def _full_forward(model: Any, prompt: tuple[int, ...], completion: Completion) -> torch.Tensor:
    """Float64-softmaxed next-token logits of one unpadded forward, [completion tokens, V]."""
    ids = torch.tensor([prompt + completion.token_ids])
    return model(input_ids=ids).logits[0, len(prompt) - 1 : -1].double()


MODELS = {
    "qwen3-eager": lambda: qwen3("eager"),
    "qwen3-sdpa": lambda: qwen3("sdpa"),
    "llama-eager": lambda: llama("eager"),
    "llama-sdpa": lambda: llama("sdpa"),
    "sliding-eager": lambda: qwen3(
        "eager", layer_types=["sliding_attention", "full_attention"], sliding_window=6, use_sliding_window=True
    ),
    "sliding-sdpa": lambda: qwen3(
        "sdpa", layer_types=["sliding_attention", "full_attention"], sliding_window=6, use_sliding_window=True
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_greedy_ids_are_those_of_generate(name: str) -> None:
    model = MODELS[name]()
    requests = ragged_requests(30)
    completions = _sampler(model).sample(requests, GREEDY)
    for request, completion in zip(requests, completions, strict=True):
        ids = torch.tensor([request.prompt_ids])
        expected = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=END,
            pad_token_id=PAD,
        )[0, ids.shape[1] :]
        assert list(completion.token_ids) == expected.tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_rows", [3, 64])
def test_sampled_ids_and_log_probabilities_are_those_of_a_full_forward(name: str, max_rows: int) -> None:
    """Each token is the inverse CDF of the model's own next-token distribution at the request's own uniform."""
    model = MODELS[name]()
    params = SamplingParams(max_new_tokens=40, temperature=0.8)
    requests = ragged_requests(25)
    completions = _sampler(model, max_rows).sample(requests, params)
    assert len({len(c.token_ids) for c in completions}) > 5, "lengths must be ragged"
    for request, completion in zip(requests, completions, strict=True):
        logprobs = (_full_forward(model, request.prompt_ids, completion) / 0.8).log_softmax(-1)
        targets = torch.from_numpy(uniforms(request.seed, len(completion.token_ids)))
        expected = torch.searchsorted(logprobs.exp().cumsum(-1), targets[:, None], right=True)[:, 0]
        assert list(completion.token_ids) == expected.tolist()
        chosen = logprobs.gather(-1, expected[:, None])[:, 0]
        assert torch.tensor(completion.logprobs).double() == pytest.approx(chosen, abs=1e-5)


def test_leading_columns_are_dropped_and_buffers_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long-lived row among many short ones: the cache must grow, shed columns and stay exact."""
    monkeypatch.setattr("evaluation.samplers.rows.FIRST_COLUMNS", 2)
    dropped: list[int] = []
    original = decoding.RowCache.drop_leading
    monkeypatch.setattr(
        decoding.RowCache, "drop_leading", lambda self, count: (dropped.append(count), original(self, count))[1]
    )
    model = qwen3("eager")
    requests = ragged_requests(60)
    params = SamplingParams(max_new_tokens=90, stop_token_ids=(6, 7, 8))
    few = _sampler(model, 4).sample(requests, params)
    assert dropped and max(dropped) > 0
    monkeypatch.undo()
    many = _sampler(model, 64).sample(requests, params)
    assert [c.token_ids for c in few] == [c.token_ids for c in many]
    for one, other in zip(few, many, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_group_shares_one_prefill() -> None:
    model = qwen3("eager")
    widths: list[tuple[int, ...]] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: widths.append(tuple(inputs[0].shape))
    )
    prompts = [(3, 4, 6, 8), (2, 9, 7)]
    requests = [SampleRequest(prompt, seed) for seed in range(4) for prompt in prompts]
    _sampler(model).sample(requests, SamplingParams(max_new_tokens=6))
    handle.remove()
    assert widths[0] == (2, 4), "eight requests, two distinct prompts"


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5])
def test_a_prompt_is_prefilled_once_however_its_requests_are_spread(max_rows: int) -> None:
    """Ids that enter the model in forwards of more than the rows' last tokens are those of the distinct prompts."""
    model = qwen3("eager")
    seen: list[tuple[int, ...]] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: seen.append(tuple(inputs[0].shape))
    )
    prompts = [(3, 4, 6, 8), (7, 3, 9, 9), (2, 9, 7), (3, 4)]
    requests = [SampleRequest(prompt, seed) for seed in range(7) for prompt in prompts]
    completions = _sampler(model, max_rows).sample(requests, SamplingParams(max_new_tokens=6))
    handle.remove()
    prefilled = [rows for rows, width in seen if width > 1]
    assert sum(prefilled) == len(prompts), "28 requests, four prompts"
    alone = [_sampler(qwen3("eager"), 1).sample([request], SamplingParams(max_new_tokens=6))[0] for request in requests]
    assert [c.token_ids for c in completions] == [c.token_ids for c in alone]
    for one, other in zip(completions, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_looking_seldom_for_stops_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = ragged_requests(60)
    params = SamplingParams(max_new_tokens=30, stop=("da", "é"), stop_sequences=((3, 4), (1,)))
    sampler = HFSampler(qwen3("eager"), end_ids=frozenset({END}), pad_id=PAD, max_rows=16, decode=decode)
    often = sampler.sample(requests, params)
    assert sum(c.finish_reason == "stop" and c.token_ids[-1] != END for c in often) > 10
    monkeypatch.setattr(decoding, "STEPS_BETWEEN_CHECKS", {"cpu": 7})
    seldom = sampler.sample(requests, params)
    assert [(c.token_ids, c.finish_reason) for c in seldom] == [(c.token_ids, c.finish_reason) for c in often]


def test_ended_rows_leave_the_batch() -> None:
    model = qwen3("eager")
    rows: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: rows.append(inputs[0].shape[0])
    )
    completions = _sampler(model, 64).sample(ragged_requests(64), SamplingParams(max_new_tokens=60))
    handle.remove()
    lengths = [len(c.token_ids) for c in completions]
    # Prefill draws the first token; decode step s carries exactly the rows longer than s.
    assert rows[1:] == [sum(length > step for length in lengths) for step in range(1, max(lengths))]


def test_looking_seldom_for_ended_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an accelerator ended rows stay a few steps longer; what they draw then must not show."""
    model = qwen3("eager")
    requests = ragged_requests(40)
    params = SamplingParams(max_new_tokens=30)
    often = _sampler(model, 16).sample(requests, params)
    monkeypatch.setattr(decoding, "STEPS_BETWEEN_CHECKS", {"cpu": 7})
    seldom = _sampler(model, 16).sample(requests, params)
    assert [c.token_ids for c in seldom] == [c.token_ids for c in often]
    assert [c.finish_reason for c in seldom] == [c.finish_reason for c in often]


def test_end_ids_beyond_the_models_vocabulary_are_harmless() -> None:
    model = qwen3("eager")
    some = _sampler(model).sample(ragged_requests(5), GREEDY)
    assert _sampler(model, ends=frozenset({END, VOCABULARY + 100})).sample(ragged_requests(5), GREEDY) == some


def test_long_queues_are_prefilled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = qwen3("eager")
    requests = ragged_requests(30)
    whole = _sampler(model, 32).sample(requests, GREEDY)
    monkeypatch.setattr(waiting, "PREFILL_TOKENS", 40)
    assert [c.token_ids for c in _sampler(model, 32).sample(requests, GREEDY)] == [c.token_ids for c in whole]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bfloat16_log_probabilities_are_close_to_float32(attention: str) -> None:
    model = qwen3(attention)
    low: Any = qwen3(attention)
    sampler = _sampler(low.to(torch.bfloat16))
    requests = ragged_requests(20)
    for request, completion in zip(requests, sampler.sample(requests, SamplingParams(max_new_tokens=24)), strict=True):
        exact = _full_forward(model, request.prompt_ids, completion).log_softmax(-1)
        chosen = exact.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        assert torch.tensor(completion.logprobs).double() == pytest.approx(chosen, abs=0.15)


def test_training_flags_and_gradients_are_left_as_they_were() -> None:
    model = qwen3("eager", attention_dropout=0.5).train()
    model.model.layers[0].eval()
    flags = {name: module.training for name, module in model.named_modules()}
    sampler = _sampler(model)
    first = sampler.sample(ragged_requests(5), GREEDY)
    assert first == _sampler(qwen3("eager")).sample(ragged_requests(5), GREEDY), "no dropout while sampling"
    assert {name: module.training for name, module in model.named_modules()} == flags
    model(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    gradient = model.get_parameter("model.embed_tokens.weight").grad
    assert gradient is not None and gradient.abs().sum() > 0


def test_the_sampler_sees_changed_weights_at_once() -> None:
    model = qwen3("eager")
    sampler = _sampler(model)
    before = sampler.sample(ragged_requests(10), GREEDY)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(-3)
    after = sampler.sample(ragged_requests(10), GREEDY)
    fresh = qwen3("eager")
    fresh.load_state_dict(model.state_dict())
    assert after == _sampler(fresh).sample(ragged_requests(10), GREEDY) != before


def test_padding_and_its_id_do_not_matter() -> None:
    requests = ragged_requests(20)
    results = [
        HFSampler(qwen3("eager"), end_ids=frozenset({END}), pad_id=pad, max_rows=20).sample(requests, GREEDY)
        for pad in (0, END, VOCABULARY - 1)
    ]
    assert results[0] == results[1] == results[2]


def test_what_cannot_be_sampled_is_refused_with_the_reason() -> None:
    sampler = _sampler(qwen3("eager", max_position_embeddings=16))
    with pytest.raises(ValueError, match="request 0: a prompt id lies outside the model's 41 ids"):
        sampler.sample([SampleRequest((41,), 0)], GREEDY)
    with pytest.raises(
        ValueError, match=r"request 0: 3 prompt tokens \+ max_new_tokens 24 exceed the model's 16 positions"
    ):
        sampler.sample([SampleRequest((1, 2, 3), 0)], GREEDY)
    with pytest.raises(ValueError, match="max_rows must be positive"):
        _sampler(qwen3("eager"), 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_cuda_agrees_with_the_cpu(name: str) -> None:
    requests = ragged_requests(30)
    params = SamplingParams(max_new_tokens=40)
    cpu = _sampler(MODELS[name]()).sample(requests, params)
    cuda = _sampler(MODELS[name]().cuda()).sample(requests, params)
    same = sum(one.token_ids == other.token_ids for one, other in zip(cpu, cuda, strict=True))
    assert same >= 28
