"""Samplers draw from the weights they are asked for, as of now, in fp32 and in bf16."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evaluation.samplers.base import SampleRequest, SamplingParams
from tests.training.learners.small import (
    BATCH,
    FROZEN,
    LORA,
    PHASE_START,
    SLOW,
    STUDENT,
    SYNCED,
    backward,
    build,
    learn,
    parameters,
)
from tests.training.small import small_model
from training.batches import align
from training.learners.hf import HFLearner
from training.learners.weights import varying
from training.method import Adapter

both = pytest.mark.parametrize("adapter", [None, LORA], ids=["all", "lora"])
ALL_KINDS = (FROZEN, SLOW, SYNCED, PHASE_START)


@both
@pytest.mark.parametrize("precision", ["float32", "bfloat16_autocast"])
def test_samplers_draw_from_the_weights_they_are_asked_for(precision: str, adapter: Adapter | None) -> None:
    learner = build(*ALL_KINDS, adapter=adapter, precision=precision, sampling_rows=4)
    for _ in range(2):  # what was drawn from before must follow the weights
        for weights in (STUDENT, *ALL_KINDS):
            _check_drawing(learner, weights, 1e-4 if precision == "float32" else 0.1)
        for update in (1, 2, 3):
            learn(learner, update, {"main": 3})
    learner.begin_phase()
    backward(learner)
    learner.step("main")
    _check_drawing(learner, PHASE_START, 1e-4 if precision == "float32" else 0.1)


def _check_drawing(learner: HFLearner, weights: Any, tolerance: float) -> None:
    sampler = learner.sampler(weights)
    drawing: Any = sampler.model
    for own, master in zip(varying(drawing).values(), varying(learner._model(weights)).values(), strict=True):
        assert torch.equal(own, master.to(own.dtype))
    requests = [SampleRequest((7, 8, 9), 11), SampleRequest((10,), 12), SampleRequest((9, 20), 13)]
    drawn = sampler.sample(requests, SamplingParams(max_new_tokens=5))
    batch = align([request.prompt_ids for request in requests], [one.token_ids for one in drawn], pad_id=0)
    ids = torch.tensor([token for one in drawn for token in one.token_ids])
    with learner.numerics(), torch.no_grad():
        scores = learner.head(weights)(learner.hidden(weights, batch, grad=False)).float().log_softmax(-1)
    found = scores.gather(1, ids[:, None])[:, 0]
    reported = torch.tensor([value for one in drawn for value in one.logprobs])
    assert float((found - reported).abs().mean()) < tolerance


def test_fp32_samples_from_the_weights_themselves() -> None:
    model = small_model()
    learner = build(FROZEN, SLOW, model=model)

    assert learner.sampler().model is learner.student
    assert learner.sampler(FROZEN).model is model
    assert learner.sampler(SLOW).model is learner._model(SLOW)


def test_bf16_keeps_fp32_masters_and_refreshes_the_sampling_copy() -> None:
    learner = build(FROZEN, SLOW, precision="bfloat16_autocast")
    drawing: Any = learner.sampler().model

    for weights in (STUDENT, SLOW):
        assert {p.dtype for p in parameters(learner, weights)} == {torch.float32}
    assert {p.dtype for p in drawing.parameters()} == {torch.bfloat16}
    assert learner.hidden(FROZEN, BATCH, grad=False).dtype == torch.bfloat16
    backward(learner)
    learner.step("main")
    assert not any(
        torch.equal(low, master.to(torch.bfloat16))
        for low, master in zip(drawing.parameters(), learner.student.parameters(), strict=True)
        if master.dim() > 1
    )
    learner.synchronise()
    for low, master in zip(drawing.parameters(), learner.student.parameters(), strict=True):
        assert torch.equal(low, master.to(torch.bfloat16))
    assert learner.sampler().model is drawing


def test_bf16_draws_from_the_frozen_copy_itself() -> None:
    learner = build(FROZEN, precision="bfloat16_autocast")

    assert learner.sampler(FROZEN).model is learner._model(FROZEN)
