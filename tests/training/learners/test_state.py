"""What a learner saves, and that a reload goes on to the bit, with all weights learning and under LoRA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.learners.small import (
    FROZEN,
    LORA,
    PHASE_START,
    SLOW,
    STUDENT,
    SYNCED,
    build,
    copied,
    learn,
    logits,
    same,
    through_files,
)
from tests.training.small import small_model
from training.learners.hf import HFLearner
from training.learners.weights import load_weights
from training.method import Adapter, EmaWeights, Optimiser

both = pytest.mark.parametrize("adapter", [None, LORA], ids=["all", "lora"])
ALL_KINDS = (FROZEN, SLOW, SYNCED, PHASE_START)


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
