"""LoRA against weights merged by hand, and what is shared, frozen, saved and refused."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from evaluation.samplers.base import SampleRequest, SamplingParams
from tests.training.learners.small import (
    BATCH,
    FROZEN,
    LORA,
    PHASE_START,
    SLOW,
    STUDENT,
    SYNCED,
    build,
    learn,
    logits,
    perturb,
)
from tests.training.small import small_model
from training.learners.adapters import adapted, adapter_parameters
from training.learners.hf import HFLearner
from training.learners.weights import load_weights, low_precision_copy, student_copy, varying, weights_of
from training.method import Adapter

REQUESTS = [SampleRequest((7, 8, 9), 1), SampleRequest((10,), 2)]


def _merged(base: PreTrainedModel, weights: dict[str, Tensor], scaling: float) -> PreTrainedModel:
    """A plain model with W + scaling·B·A, computed in float64 from the names of a checkpoint."""
    model = copy.deepcopy(base)
    named = dict(model.named_parameters())
    for name, down in weights.items():
        if ".lora_A." in name:
            up = weights[name.replace("lora_A", "lora_B")].double()
            target = named[name.split(".lora_A.")[0] + ".weight"]
            target.data = (target.double() + scaling * up @ down.double()).float()
    return model


def _tensors(*models: nn.Module) -> dict[int, int]:
    return {p.data_ptr(): p.numel() for model in models for p in (*model.parameters(), *model.buffers()) if p.dim() > 1}


# --- what it computes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [LORA, Adapter(rank=2, alpha=3.0, layers=("o_proj", "up_proj"))])
def test_a_large_adapter_moves_student_and_sampler_as_merged_weights_say(adapter: Adapter) -> None:
    base = small_model()
    learner = build(FROZEN, model=base, adapter=adapter)
    perturb(learner, 0.5)
    scaling = adapter.alpha / adapter.rank
    reference = build(model=_merged(base, learner.state()["student"], scaling))

    torch.testing.assert_close(logits(learner, STUDENT), logits(reference, STUDENT), rtol=1e-4, atol=1e-4)
    assert float((logits(learner, STUDENT) - logits(learner, FROZEN)).abs().max()) > 1

    params = SamplingParams(max_new_tokens=6)
    drawn, wanted = learner.sampler().sample(REQUESTS, params), reference.sampler().sample(REQUESTS, params)
    before = build(model=base).sampler().sample(REQUESTS, params)
    assert [one.token_ids for one in drawn] == [one.token_ids for one in wanted]
    for one, other in zip(drawn, wanted, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert abs(drawn[0].logprobs[0] - before[0].logprobs[0]) > 0.05


def test_frozen_is_the_adapter_switched_off_to_the_bit() -> None:
    learner = build(FROZEN, adapter=LORA)
    for update in (1, 2):
        learn(learner, update)
    frozen = logits(learner, FROZEN)
    assert not torch.equal(logits(learner, STUDENT), frozen)

    for layer in learner.student.modules():
        if isinstance(layer, LoraLayer):
            layer.enable_adapters(False)

    assert torch.equal(logits(learner, STUDENT), frozen)


@pytest.mark.parametrize("precision", ["float32", "bfloat16_autocast"])
def test_a_fresh_adapter_computes_exactly_what_the_base_does(precision: str) -> None:
    learner = build(FROZEN, SLOW, adapter=LORA, precision=precision)

    assert torch.equal(logits(learner, STUDENT), logits(learner, FROZEN))
    assert torch.equal(logits(learner, STUDENT), logits(learner, SLOW))


def test_gradients_are_those_of_the_merged_weights() -> None:
    # dL/dB = scaling·(dL/dW)·Aᵀ and dL/dA = scaling·Bᵀ·(dL/dW)
    base = small_model()
    learner = build(model=base, adapter=LORA)
    perturb(learner, 0.1)
    reference = _merged(base, learner.state()["student"], 2.0).requires_grad_(True)
    whole = build(model=reference)
    for one in (learner, whole):
        one.hidden(STUDENT, BATCH, grad=True).square().sum().backward()
    dense = {name: p.grad for name, p in whole.student.named_parameters()}
    own = varying(learner.student)

    for name, down in own.items():
        if ".lora_A." not in name:
            continue
        up, outer = own[name.replace("lora_A", "lora_B")], dense[name.split(".lora_A.")[0] + ".weight"]
        assert outer is not None and up.grad is not None and down.grad is not None
        torch.testing.assert_close(up.grad, 2 * outer @ down.detach().T, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(down.grad, 2 * up.detach().T @ outer, rtol=1e-3, atol=1e-3)


# --- how it starts -----------------------------------------------------------------------------------------------


def test_a_is_uniform_b_is_zero_and_the_seed_decides() -> None:
    base = small_model()
    first, again, other = (adapter_parameters(adapted(base, LORA, seed=seed)) for seed in (1, 1, 2))

    for name, parameter in first.items():
        assert torch.equal(parameter, again[name])
        if ".lora_B." in name:
            assert not parameter.any()
        else:
            bound = 1 / math.sqrt(parameter.shape[1])
            assert 0.8 * bound < float(parameter.detach().abs().max()) <= bound
            assert not torch.equal(parameter, other[name])
    layers = {".".join(name.split(".")[:-3]) for name in first}
    assert len(layers) == 2 * len(LORA.layers) and len(first) == 2 * len(layers)


def test_building_an_adapter_leaves_the_global_random_state() -> None:
    before = torch.get_rng_state()
    build(SLOW, adapter=LORA)

    assert torch.equal(before, torch.get_rng_state())


# --- what is shared ----------------------------------------------------------------------------------------------


def test_every_view_together_holds_one_copy_of_the_base() -> None:
    base = small_model()
    learner = build(FROZEN, SLOW, SYNCED, PHASE_START, model=base, adapter=LORA)
    models = [learner._model(weights) for weights in (STUDENT, FROZEN, SLOW, SYNCED)] + [learner._models[PHASE_START]]

    adapter = sum(p.numel() for p in adapter_parameters(learner.student).values())
    held = _tensors(*models, *(learner.sampler(weights).model for weights in (STUDENT, FROZEN, SLOW)))
    assert sum(held.values()) == sum(_tensors(base).values()) + 4 * adapter
    assert learner._model(FROZEN) is base


def test_bf16_adds_one_low_precision_base_for_all_that_draw() -> None:
    base = small_model()
    learner = build(FROZEN, SLOW, model=base, adapter=LORA, precision="bfloat16_autocast")
    drawing = [learner.sampler(weights).model for weights in (STUDENT, FROZEN, SLOW)]

    adapter = sum(p.numel() for p in adapter_parameters(learner.student).values())
    assert sum(_tensors(*drawing).values()) == sum(_tensors(base).values()) + 2 * adapter
    assert {p.dtype for model in drawing for p in model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in learner.student.parameters()} == {torch.float32}
    learn(learner, 1)
    for name, parameter in adapter_parameters(learner.sampler().model).items():
        assert torch.equal(parameter, varying(learner.student)[name].to(torch.bfloat16))


def test_only_the_adapter_learns_and_the_head_stays() -> None:
    learner = build(adapter=LORA)
    learning = {name for name, p in learner.student.named_parameters() if p.requires_grad}

    assert learning == set(adapter_parameters(learner.student))
    learner.hidden(STUDENT, BATCH, grad=True).square().sum().backward()
    assert {name for name, p in learner.student.named_parameters() if p.grad is not None} == learning
    adapter = sum(p.numel() for p in learner.student.parameters() if p.requires_grad)
    assert learner.trained_parameters == adapter
    assert learner.parameters == sum(p.numel() for p in small_model().parameters()) + adapter


# --- checkpoints -------------------------------------------------------------------------------------------------


def test_a_checkpoint_holds_adapter_weights_only() -> None:
    learner = build(FROZEN, SLOW, SYNCED, adapter=LORA)
    learn(learner, 1)
    state = learner.state()

    for file in ("student", "average-0.05", "synced-3"):
        assert set(state[file]) == {*adapter_parameters(learner.student), "adapter_scaling"}
    assert all("lora_" in name or name.startswith("steps/") for name in state["optimiser"])


def test_checkpoints_of_another_adapter_are_refused() -> None:
    learner = build(adapter=LORA)

    refused: list[tuple[str, HFLearner]] = [
        ("another model", build()),
        (r"is \[8, 32\] in the weights and \[4, 32\] here", build(adapter=Adapter(rank=8, alpha=16.0))),
        ("trained with alpha/rank 4, here it is 2", build(adapter=Adapter(rank=4, alpha=16.0))),
        ("another model", build(adapter=Adapter(rank=4, alpha=8.0, layers=("q_proj",)))),
    ]
    for message, other in refused:
        with pytest.raises(ValueError, match=message):
            learner.load_state(other.state())
    with pytest.raises(ValueError, match="another model"):
        build().load_state(learner.state())


@pytest.mark.parametrize("low", [False, True])
def test_a_checkpoint_becomes_the_model_that_was_trained(low: bool) -> None:
    base = small_model()
    learner = build(model=base, adapter=LORA, seed=9, precision="bfloat16_autocast" if low else "float32")
    perturb(learner, 0.3)
    model = student_copy(base, LORA, seed=1)  # its A comes from another seed
    load_weights(model, weights_of(learner.student))
    if low:
        model = low_precision_copy(model)

    ids: Any = {"input_ids": torch.tensor([[7, 8, 9, 10]])}
    drawing: Any = learner.sampler().model
    with torch.no_grad():
        assert torch.equal(model(**ids).logits, drawing(**ids).logits)


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("c_attn", r"'c_attn', but Qwen3ForCausalLM has no linear layer of that name; it has down_proj, gate_proj"),
        ("q_norm", "'q_norm', but .* no linear layer"),
        ("embed_tokens", "'embed_tokens', but .* no linear layer"),
        ("lm_head", "'lm_head', the output head, which stays frozen"),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_layers_that_cannot_carry_an_adapter_are_refused(layer: str, message: str, tied: bool) -> None:
    with pytest.raises(ValueError, match=message):
        build(model=small_model(tie_word_embeddings=tied), adapter=Adapter(layers=("q_proj", layer)))
