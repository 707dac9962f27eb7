from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from tests.training.small import small_model
from training.batches import align
from training.learners.hf import HFLearner, half_life
from training.learners.optimiser import learning_rate as warmed_up
from training.learners.weights import load_weights
from training.method import EmaWeights, FrozenWeights, Optimiser, StudentWeights
from training.spec import ComputeSpec

STUDENT, FROZEN = StudentWeights(), FrozenWeights()
SLOW = EmaWeights(teacher_update_rate=0.05)
BATCH = align([[7, 8, 9], [10]], [[11, 12], [13, 14, 15]], pad_id=0)


def _learner(*weights: Any, model: Any = None, **how: Any) -> HFLearner:
    optimiser = how.pop("optimiser", Optimiser(learning_rate=1e-2))
    compute = ComputeSpec(**how)
    return HFLearner(model or small_model(), optimiser, compute, [STUDENT, *weights], end_ids=frozenset({1}), pad_id=0)


def _fill(model: Any, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def _zero_gradients(learner: HFLearner) -> None:
    for parameter in learner.student.parameters():
        parameter.grad = torch.zeros_like(parameter)


def _learn(learner: HFLearner, update: int) -> None:
    learner.hidden(STUDENT, BATCH, grad=True).square().sum().backward()
    learner.step(update)


def _parameters(model: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


# --- views -------------------------------------------------------------------------------------------------------


def test_hidden_states_through_the_head_are_the_models_logits() -> None:
    model = small_model()
    learner = _learner(model=model)

    logits = learner.head(STUDENT)(learner.hidden(STUDENT, BATCH, grad=False))

    first = model(input_ids=torch.tensor([[7, 8, 9, 11, 12]])).logits[0, 2:4]
    second = model(input_ids=torch.tensor([[10, 13, 14, 15]])).logits[0, 0:3]
    torch.testing.assert_close(logits, torch.cat([first, second]), rtol=1e-5, atol=1e-5)


def test_padding_and_neighbours_do_not_move_a_rows_states() -> None:
    learner = _learner()
    alone = align([[10]], [[13, 14, 15]], pad_id=0)

    torch.testing.assert_close(
        learner.hidden(STUDENT, BATCH, grad=False)[2:], learner.hidden(STUDENT, alone, grad=False), atol=1e-5, rtol=0
    )


def test_frozen_weights_are_the_weights_the_student_started_from_and_stay() -> None:
    # From a checkpoint that was changed after it was made, not from any name.
    model = small_model(seed=3)
    _fill(model.get_submodule("model.layers.0.mlp"), 0.01)
    learner = _learner(FROZEN, model=model)
    start = learner.hidden(FROZEN, BATCH, grad=False)
    assert torch.equal(start, learner.hidden(STUDENT, BATCH, grad=False))

    for update in range(1, 4):
        _learn(learner, update)

    assert torch.equal(start, learner.hidden(FROZEN, BATCH, grad=False))
    assert not torch.allclose(start, learner.hidden(STUDENT, BATCH, grad=False))


def test_dropout_is_off_for_student_and_teacher() -> None:
    learner = _learner(FROZEN, model=small_model(attention_dropout=0.5))

    for weights in (STUDENT, FROZEN):
        assert torch.equal(learner.hidden(weights, BATCH, grad=True), learner.hidden(weights, BATCH, grad=True))


def test_only_the_student_is_given_a_graph() -> None:
    learner = _learner(FROZEN, SLOW)

    assert learner.hidden(STUDENT, BATCH, grad=True).requires_grad
    for weights in (FROZEN, SLOW):
        assert not learner.hidden(weights, BATCH, grad=True).requires_grad


def test_copies_that_no_view_needs_are_not_made() -> None:
    learner = _learner()

    with pytest.raises(ValueError, match="without frozen weights"):
        learner.hidden(FROZEN, BATCH, grad=False)
    with pytest.raises(ValueError, match=r"no moving average of rate 0\.05"):
        learner.hidden(SLOW, BATCH, grad=False)
    assert set(learner.state()) == {"student", "optimiser"}


# --- moving averages ---------------------------------------------------------------------------------------------


def test_rate_005_moves_the_average_005_of_the_way_in_one_update() -> None:
    learner = _learner(SLOW)
    _fill(learner._averages[0.05], 0.0)
    _fill(learner.student, 1.0)
    _zero_gradients(learner)

    learner.step(1)

    for tensor in learner.state()["average-0.05"].values():
        torch.testing.assert_close(tensor, torch.full_like(tensor, 0.05), rtol=1e-6, atol=0)


def test_the_average_follows_theta_by_its_formula() -> None:
    rate = 0.3
    learner = _learner(EmaWeights(teacher_update_rate=rate))
    expected = [tensor.double() for tensor in _parameters(learner.student)]

    for update in range(1, 6):
        _learn(learner, update)
        student = _parameters(learner.student)
        expected = [(1 - rate) * slow + rate * fast.double() for slow, fast in zip(expected, student, strict=True)]

    for slow, wanted in zip(_parameters(learner._averages[rate]), expected, strict=True):
        torch.testing.assert_close(slow.double(), wanted, rtol=0, atol=1e-6)


def test_the_average_never_moves_away_from_a_resting_student() -> None:
    learner = _learner(SLOW)
    _fill(learner.student, 1.0)
    distances = []
    for update in range(1, 30):
        _zero_gradients(learner)
        learner.step(update)
        pairs = zip(learner._averages[0.05].parameters(), learner.student.parameters(), strict=True)
        distances.append(sum(float((slow - fast).detach().square().sum()) for slow, fast in pairs))

    assert all(later < earlier for earlier, later in itertools.pairwise(distances))


@pytest.mark.parametrize(("rate", "updates"), [(0.5, 1.0), (0.05, 13.513407), (0.001, 692.80055), (1.0, 0.0)])
def test_half_life(rate: float, updates: float) -> None:
    # (1 − rate)^h = ½
    assert half_life(rate) == pytest.approx(updates, rel=1e-6)


# --- the optimiser -----------------------------------------------------------------------------------------------


def test_warm_up_is_linear_and_ends_at_the_rate() -> None:
    optimiser = Optimiser(learning_rate=1.0, warmup_updates=4)

    assert [warmed_up(optimiser, update) for update in range(1, 7)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert warmed_up(Optimiser(learning_rate=0.3), 1) == 0.3


def test_steps_are_clipped_adamw_by_the_formula() -> None:
    spec = Optimiser(
        learning_rate=0.02, betas=(0.9, 0.98), epsilon=1e-8, weight_decay=0.1, warmup_updates=2, max_grad_norm=0.5
    )
    learner = _learner(optimiser=spec)
    names = [name for name, _ in learner.student.named_parameters()]
    theta = {name: p.detach().double().clone() for name, p in learner.student.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in theta.items()}
    second = {name: torch.zeros_like(value) for name, value in theta.items()}

    for update in range(1, 4):
        learner.hidden(STUDENT, BATCH, grad=True).square().sum().backward()
        raw = {name: p.grad.double().clone() for name, p in learner.student.named_parameters() if p.grad is not None}
        reported = learner.step(update)

        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in raw.values()))
        assert reported["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert norm > 0.5, "the clip must bind for this test to see it"
        rate = 0.02 * min(1, update / 2)
        assert reported["learning_rate"] == pytest.approx(rate)
        for name in names:
            gradient = raw[name] * 0.5 / (norm + 1e-6)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.98 * second[name] + 0.02 * gradient**2
            mean, square = first[name] / (1 - 0.9**update), second[name] / (1 - 0.98**update)
            theta[name] = theta[name] * (1 - rate * 0.1) - rate * mean / (square.sqrt() + 1e-8)
        for name, parameter in learner.student.named_parameters():
            torch.testing.assert_close(parameter.detach().double(), theta[name], rtol=1e-4, atol=2e-5)


# --- state -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(), (FROZEN,), (SLOW,), (SLOW, EmaWeights(teacher_update_rate=0.5))])
def test_two_updates_and_two_after_a_reload_are_four_to_the_bit(weights: tuple[Any, ...]) -> None:
    whole, half, rest = _learner(*weights), _learner(*weights), _learner(*weights)
    for update in (1, 2, 3, 4):
        _learn(whole, update)
    for update in (1, 2):
        _learn(half, update)
    saved = {file: {name: tensor.clone() for name, tensor in tensors.items()} for file, tensors in half.state().items()}

    rest.load_state(saved)
    for update in (3, 4):
        _learn(rest, update)

    expected = whole.state()
    assert set(rest.state()) == set(expected)
    for file, tensors in rest.state().items():
        assert set(tensors) == set(expected[file])
        assert all(torch.equal(tensor, expected[file][name]) for name, tensor in tensors.items())


def test_a_loaded_learner_does_not_write_into_what_it_loaded() -> None:
    source, learner = _learner(), _learner()
    _learn(source, 1)
    saved = {file: {name: t.clone() for name, t in tensors.items()} for file, tensors in source.state().items()}
    copies = {file: {name: t.clone() for name, t in tensors.items()} for file, tensors in saved.items()}

    learner.load_state(saved)
    _learn(learner, 2)

    assert all(torch.equal(saved[file][name], t) for file, tensors in copies.items() for name, t in tensors.items())


def test_tied_weights_are_saved_once_and_untied_ones_both() -> None:
    tied, untied = _learner(), _learner(model=small_model(tie_word_embeddings=False))

    assert "lm_head.weight" not in tied.state()["student"]
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(untied.state()["student"])


def test_state_of_another_method_or_model_is_refused() -> None:
    learner = _learner(SLOW)

    with pytest.raises(ValueError, match=r"holds \['optimiser', 'student'\], this method needs .*average-0\.05"):
        learner.load_state(_learner().state())
    with pytest.raises(ValueError, match="weights are of another model"):
        load_weights(small_model(), small_model(num_hidden_layers=1).state_dict())
    wider = dict(_learner(model=small_model(intermediate_size=64)).state()["student"])
    with pytest.raises(ValueError, match=r"mlp.* is \[64, 32\] in the weights and \[48, 32\] here"):
        load_weights(small_model(), wider)


# --- bf16 --------------------------------------------------------------------------------------------------------


def test_bf16_keeps_fp32_masters_and_refreshes_the_sampling_copy() -> None:
    learner = _learner(FROZEN, SLOW, precision="bfloat16_autocast")
    drawing = learner.sampler().model

    assert {p.dtype for p in learner.student.parameters()} == {torch.float32}
    assert {p.dtype for p in learner._averages[0.05].parameters()} == {torch.float32}
    assert {p.dtype for p in drawing.parameters()} == {torch.bfloat16}
    assert learner.hidden(FROZEN, BATCH, grad=False).dtype == torch.bfloat16
    _learn(learner, 1)
    assert not any(
        torch.equal(copied, master.to(torch.bfloat16))
        for copied, master in zip(drawing.parameters(), learner.student.parameters(), strict=True)
        if master.dim() > 1
    )
    learner.synchronise()
    for copied, master in zip(drawing.parameters(), learner.student.parameters(), strict=True):
        assert torch.equal(copied, master.to(torch.bfloat16))


def test_fp32_samples_from_the_student_itself() -> None:
    learner = _learner()

    assert learner.sampler().model is learner.student
