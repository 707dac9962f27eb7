"""Views, moving averages, copies, samplers and resuming, with all weights learning and under LoRA."""

from __future__ import annotations

import itertools
from pathlib import Path
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
    copied,
    fill,
    learn,
    logits,
    parameters,
    perturb,
    same,
    through_files,
)
from tests.training.small import small_model
from training.batches import align
from training.learners.hf import HFLearner, half_life
from training.learners.loading import load_base
from training.learners.weights import load_weights, varying
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


# --- sampling ----------------------------------------------------------------------------------------------------


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


# --- state -------------------------------------------------------------------------------------------------------

PHASES = {
    "first": Optimiser(learning_rate=1e-2, warmup_updates=3, decay="cosine", total_updates=7),
    "second": Optimiser(learning_rate=5e-3, decay="linear", total_updates=5, max_grad_norm=0.1),
}


_SAVED = [(), (FROZEN,), (SLOW,), (SLOW, EmaWeights(teacher_update_rate=0.5)), (SYNCED,), (PHASE_START,), ALL_KINDS]


@both
@pytest.mark.parametrize(
    ("weights", "precision"),
    [*((weights, "float32") for weights in _SAVED), ((), "bfloat16_autocast"), (ALL_KINDS, "bfloat16_autocast")],
    ids=lambda value: value if isinstance(value, str) else "+".join(one.kind for one in value) or "student",
)
def test_four_updates_are_two_and_two_after_a_reload_to_the_bit(
    tmp_path: Path, weights: tuple[Any, ...], precision: str, adapter: Adapter | None
) -> None:
    whole, half, rest = (
        build(*weights, optimisers=PHASES, adapter=adapter, precision=precision, seed=4) for _ in range(3)
    )
    for update in (1, 2, 3, 4):
        _two_phases(whole, update)
    for update in (1, 2):
        _two_phases(half, update)

    rest.load_state(through_files(half.state(), tmp_path))
    for update in (3, 4):
        _two_phases(rest, update)

    assert same(rest.state(), whole.state())
    for view in (STUDENT, *weights):
        assert torch.equal(logits(rest, view), logits(whole, view))
    for own, other in zip(rest.sampler().model.parameters(), whole.sampler().model.parameters(), strict=True):
        assert torch.equal(own, other)


def _two_phases(learner: HFLearner, update: int) -> None:
    # The second phase runs at even updates: the phases' counts differ.
    learn(learner, update, {"first": 2} if update % 2 else {"first": 2, "second": 1})


@both
def test_a_loaded_learner_does_not_write_into_what_it_loaded(adapter: Adapter | None) -> None:
    source, learner = build(SLOW, SYNCED, adapter=adapter), build(SLOW, SYNCED, adapter=adapter)
    learn(source, 1)
    saved = copied(source.state())
    untouched = copied(saved)

    learner.load_state(saved)
    learn(learner, 2)
    learn(learner, 3)

    assert same(saved, untouched)


def test_tied_weights_are_saved_once_and_untied_ones_both() -> None:
    tied, untied = build(), build(model=small_model(tie_word_embeddings=False))

    assert "lm_head.weight" not in tied.state()["student"]
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(untied.state()["student"])


def test_state_of_another_method_or_model_is_refused_and_nothing_changes() -> None:
    learner = build(SLOW)
    learn(learner, 1)
    before = copied(learner.state())
    other = build(SLOW, model=small_model(seed=9))
    learn(other, 1)
    good = copied(other.state())
    deeper = build(SLOW, model=small_model(num_hidden_layers=3)).state()
    half = {name: tensor.to(torch.bfloat16) for name, tensor in good["average-0.05"].items()}

    refused: dict[str, Any] = {
        r"holds \['optimiser', 'student'\], this method needs .*average-0\.05": build().state(),
        "weights are of another model": {**good, "average-0.05": deeper["average-0.05"]},
        "phases": build(SLOW, optimisers=PHASES).state(),
        "optimiser's state is of another model": {**good, "optimiser": _optimiser_of(small_model(num_hidden_layers=3))},
        "bfloat16 in the weights": {**good, "average-0.05": half},
    }
    for message, state in refused.items():
        with pytest.raises(ValueError, match=message):
            learner.load_state(state)
        assert same(learner.state(), before)


def _optimiser_of(model: Any) -> Any:
    learner = build(model=model)
    learn(learner, 1)
    return learner.state()["optimiser"]


def test_weights_of_another_shape_are_refused() -> None:
    wider = dict(build(model=small_model(intermediate_size=64)).state()["student"])

    with pytest.raises(ValueError, match=r"mlp.* is \[64, 32\] in the weights and \[48, 32\] here"):
        load_weights(small_model(), wider)
