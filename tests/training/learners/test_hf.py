"""Views, moving averages and copies of the student, with all weights learning and under LoRA."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

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
    fill,
    learn,
    logits,
    parameters,
    perturb,
)
from tests.training.small import small_model
from training.batches import align
from training.learners.hf import HFLearner, half_life
from training.learners.loading import load_base
from training.method import Adapter, EmaWeights, Optimiser, SyncedWeights

both = pytest.mark.parametrize("adapter", [None, LORA], ids=["all", "lora"])
ALL_KINDS = (FROZEN, SLOW, SYNCED, PHASE_START)


def _fill(model: Any, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def _distance(learner: HFLearner, weights: Any) -> float:
    pairs = zip(parameters(learner, weights), parameters(learner), strict=True)
    return sum(float((slow - fast).square().sum()) for slow, fast in pairs)


# --- views -------------------------------------------------------------------------------------------------------


def test_hidden_states_through_the_head_are_the_models_logits() -> None:
    model = small_model()
    found = logits(build(model=model), STUDENT)

    first = model(input_ids=torch.tensor([[7, 8, 9, 11, 12]])).logits[0, 2:4]
    second = model(input_ids=torch.tensor([[10, 13, 14, 15]])).logits[0, 0:3]
    torch.testing.assert_close(found, torch.cat([first, second]), rtol=1e-5, atol=1e-5)


def test_padding_and_neighbours_do_not_move_a_rows_states() -> None:
    learner = build()
    alone = align([[10]], [[13, 14, 15]], pad_id=0)

    torch.testing.assert_close(
        learner.hidden(STUDENT, BATCH, grad=False)[2:], learner.hidden(STUDENT, alone, grad=False), atol=1e-5, rtol=0
    )


@both
def test_every_view_starts_from_the_students_own_start(tmp_path: Path, adapter: Adapter | None) -> None:
    # From a checkpoint that was changed after it was made, not from any name.
    changed = small_model(seed=3)
    _fill(changed.get_submodule("model.layers.0.mlp"), 0.01)
    changed.save_pretrained(tmp_path)
    base = load_base(tmp_path, f"hash-changed-{adapter}", torch.device("cpu"))
    learner = build(*ALL_KINDS, model=base, adapter=adapter)

    start = logits(learner, STUDENT)

    # Another implementation of attention rounds differently.
    torch.testing.assert_close(start, logits(build(model=changed), STUDENT), rtol=1e-5, atol=1e-5)
    for weights in ALL_KINDS:
        assert torch.equal(start, logits(learner, weights))


@both
def test_frozen_weights_stay_and_the_base_is_only_read(adapter: Adapter | None) -> None:
    model = small_model()
    before = [parameter.clone() for parameter in model.parameters()]
    learner = build(*ALL_KINDS, model=model, adapter=adapter)
    start = logits(learner, FROZEN)

    for update in range(1, 5):
        learn(learner, update)

    assert torch.equal(start, logits(learner, FROZEN))
    assert not torch.allclose(start, logits(learner, STUDENT))
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


@both
def test_dropout_is_off_and_two_looks_are_the_same(adapter: Adapter | None) -> None:
    learner = build(*ALL_KINDS, model=small_model(attention_dropout=0.5), adapter=adapter)

    for weights in (STUDENT, *ALL_KINDS):
        assert torch.equal(learner.hidden(weights, BATCH, grad=True), learner.hidden(weights, BATCH, grad=True))


@both
def test_only_the_student_is_given_a_graph(adapter: Adapter | None) -> None:
    learner = build(*ALL_KINDS, adapter=adapter)

    assert learner.hidden(STUDENT, BATCH, grad=True).requires_grad
    for weights in ALL_KINDS:
        assert not learner.hidden(weights, BATCH, grad=True).requires_grad


def test_copies_that_no_view_needs_are_not_made() -> None:
    learner = build(SLOW)

    for weights in (FROZEN, SYNCED, PHASE_START, EmaWeights(teacher_update_rate=0.1)):
        with pytest.raises(ValueError, match=f"without the weights .*{weights.kind}"):
            learner.hidden(weights, BATCH, grad=False)
        with pytest.raises(ValueError, match="without the weights"):
            learner.sampler(weights)
    assert set(learner.state()) == {"student", "optimiser", "average-0.05"}


# --- moving averages ---------------------------------------------------------------------------------------------


@both
def test_rate_005_moves_the_average_005_of_the_way_in_one_update(adapter: Adapter | None) -> None:
    learner = build(SLOW, adapter=adapter)
    fill(learner, SLOW, 0.0)
    fill(learner, STUDENT, 1.0)

    learner.advance(1)

    for tensor in parameters(learner, SLOW):
        torch.testing.assert_close(tensor, torch.full_like(tensor, 0.05), rtol=1e-6, atol=0)


def test_the_default_rate_is_the_documented_one() -> None:
    default = EmaWeights()
    learner = build(default)
    fill(learner, default, 0.0)
    fill(learner, STUDENT, 1.0)

    learner.advance(1)

    rate = EmaWeights.model_fields["teacher_update_rate"].default
    assert float(parameters(learner, default)[0].flatten()[0]) == pytest.approx(rate, rel=1e-6)


@both
def test_the_average_follows_theta_once_an_update_however_many_steps(adapter: Adapter | None) -> None:
    rate = 0.3
    weights = EmaWeights(teacher_update_rate=rate)
    learner = build(weights, adapter=adapter)
    expected = [tensor.double() for tensor in parameters(learner)]

    for update in range(1, 6):
        learn(learner, update, {"main": update})
        expected = [
            (1 - rate) * slow + rate * fast.double() for slow, fast in zip(expected, parameters(learner), strict=True)
        ]

    for slow, wanted in zip(parameters(learner, weights), expected, strict=True):
        assert slow.dtype == torch.float32
        torch.testing.assert_close(slow.double(), wanted, rtol=0, atol=1e-6)


@both
def test_the_average_never_moves_away_from_a_resting_student(adapter: Adapter | None) -> None:
    learner = build(SLOW, adapter=adapter)
    perturb(learner, 1.0)
    distances = [_distance(learner, SLOW)]
    for update in range(1, 30):
        learner.advance(update)
        distances.append(_distance(learner, SLOW))

    assert all(later < earlier for earlier, later in itertools.pairwise(distances))


def test_a_rate_of_one_is_the_student() -> None:
    weights = EmaWeights(teacher_update_rate=1.0)
    learner = build(weights)
    learn(learner, 1)

    assert torch.equal(logits(learner, weights), logits(learner, STUDENT))


@pytest.mark.parametrize(("rate", "updates"), [(0.5, 1.0), (0.05, 13.513407), (0.001, 692.80055), (1.0, 0.0)])
def test_half_life(rate: float, updates: float) -> None:
    # (1 − rate)^h = ½
    assert half_life(rate) == pytest.approx(updates, rel=1e-6)


def test_after_its_half_life_an_average_is_half_way() -> None:
    weights = EmaWeights(teacher_update_rate=1 - 0.5 ** (1 / 8))  # half-life 8
    learner = build(weights)
    fill(learner, weights, 0.0)
    fill(learner, STUDENT, 1.0)
    for update in range(1, 9):
        learner.advance(update)

    assert half_life(weights.teacher_update_rate) == pytest.approx(8)
    torch.testing.assert_close(parameters(learner, weights)[0].mean(), torch.tensor(0.5), rtol=1e-5, atol=0)


# --- copies of the student ---------------------------------------------------------------------------------------


@both
def test_synced_weights_are_the_student_after_every_third_update(adapter: Adapter | None) -> None:
    learner = build(SYNCED, adapter=adapter)
    history = [parameters(learner)]
    for update in range(1, 8):
        learn(learner, update, {"main": 2})
        history.append(parameters(learner))
        wanted = history[update // 3 * 3]
        assert all(torch.equal(old, new) for old, new in zip(wanted, parameters(learner, SYNCED), strict=True))


def test_synced_every_update_rests_while_the_student_steps() -> None:
    weights = SyncedWeights(every=1)
    learner = build(weights)
    start = logits(learner, STUDENT)
    backward(learner)
    learner.step("main")

    assert torch.equal(logits(learner, weights), start)
    assert not torch.equal(logits(learner, STUDENT), start)
    learner.advance(1)
    assert torch.equal(logits(learner, weights), logits(learner, STUDENT))


@both
def test_phase_start_is_the_student_as_each_phase_began(adapter: Adapter | None) -> None:
    optimisers = {"first": Optimiser(learning_rate=1e-2), "second": Optimiser(learning_rate=1e-2)}
    learner = build(PHASE_START, optimisers=optimisers, adapter=adapter)
    for update in (1, 2):
        for phase in optimisers:
            before = logits(learner, STUDENT)
            assert torch.equal(logits(learner, PHASE_START), before) == (phase == "first")
            learner.begin_phase()
            for _ in range(2):
                backward(learner)
                learner.step(phase)
                assert torch.equal(logits(learner, PHASE_START), before)
                assert not torch.equal(logits(learner, STUDENT), before)
        learner.advance(update)
        assert torch.equal(logits(learner, PHASE_START), logits(learner, STUDENT))
