"""What changes nothing in any method: how a batch is cut, padded and prompted; and where its gradients go."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.training.methods import stub_learner
from tests.training.methods.runs import LONGEST, Batch, draw, prepare, run
from tests.training.methods.test_invariants import KEYS, SCORES, due, gradients, grouped, same, size
from tests.training.small import small_renderer
from training.method import StudentWeights
from training.methods import METHODS
from training.update import run_update

# --- how the batch is cut, padded, prompted ----------------------------------------------------------------------


def _steps(key: str) -> dict[str, Any]:
    """Two optimiser steps where the paper takes several."""
    return {"batch.step_prompts": 1} if METHODS[key].batch.step_prompts is not None else {}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("rows", "chunk"), [(1, 3), (4, 64), (64, 1)])
def test_micro_batches_padding_and_chunks_change_nothing(key: str, rows: int, chunk: int) -> None:
    method = grouped(key, _steps(key))
    batch = draw(method, SCORES)
    whole = run(method, batch, due(method))
    parts = run(method, copy.deepcopy(batch), due(method), rows=rows, chunk=chunk)
    assert size(gradients(whole)) > 1e-9
    same(gradients(parts), gradients(whole))
    assert parts.metrics["loss"] == pytest.approx(whole.metrics["loss"] or 0.0, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("key", KEYS)
def test_prompts_are_outside_the_loss(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With states that know their own id alone, other questions change nothing."""
    monkeypatch.setattr(stub_learner, "MEMORY", 0.0)
    method = grouped(key, _steps(key))
    batch = draw(method, SCORES)
    first = run(method, batch, due(method))
    other = copy.deepcopy(batch)
    other.problems = [
        problem.model_copy(
            update={"prompt": (problem.prompt[0].model_copy(update={"content": f"{place}+9=1+{place}:"}),)}
        )
        for place, problem in enumerate(batch.problems)
    ]
    second = run(method, other, due(method))
    renderer = small_renderer()
    assert len(renderer.student_ids(other.problems[0])) != len(renderer.student_ids(batch.problems[0]))
    same(gradients(second), gradients(first), tolerance=1e-12)


@pytest.mark.parametrize("key", KEYS)
def test_order_of_the_problems_changes_nothing(key: str) -> None:
    method = grouped(key)
    batch = draw(method, SCORES)
    turned = Batch(
        [batch.problems[1], batch.problems[0]],
        batch.responses[3:] + batch.responses[:3],
        batch.logprobs[3:] + batch.logprobs[:3],
        batch.scores[3:] + batch.scores[:3],
    )
    same(gradients(run(method, turned, due(method))), gradients(run(method, batch, due(method))))


# --- where gradients go ------------------------------------------------------------------------------------------

LEARNING_VIEWS = {"vpd": {("student", "student"), ("teacher", "teacher")}}
"""(phase, view) that learn. Every other method trains the student's view alone."""


@pytest.mark.parametrize("key", KEYS)
def test_gradients_reach_the_learning_view_alone(key: str) -> None:
    method = grouped(key, _steps(key))
    batch = draw(method, SCORES)
    finished = run(method, batch, due(method))
    learning = {(phase, term.of) for phase, content in method.phases.items() for term in content.terms.values()}
    assert learning == LEARNING_VIEWS.get(key, {("student", "student")})
    renderer = small_renderer()
    plain = [renderer.student_ids(problem) for problem in batch.problems]
    bare = [ids for _, ids in finished.learner.asked_for_gradient if any(ids[: len(p)] == p for p in plain)]
    assert all(isinstance(weights, StudentWeights) for weights, _ in finished.learner.asked_for_gradient)
    shown = len(finished.learner.asked_for_gradient) - len(bare)
    assert bare and (shown > 0) == (key == "vpd")
    for kind, model in finished.learner.models.items():
        if not isinstance(kind, StudentWeights):
            assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("key", KEYS)
def test_frozen_and_averaged_weights_stay(key: str) -> None:
    method = grouped(key, _steps(key))
    prepared = prepare(method, draw(method, SCORES))
    before = {kind: copy.deepcopy(model.state_dict()) for kind, model in prepared.learner.models.items()}
    run_update(prepared.trainer, due(method), prepared.batch.problems)
    for kind, model in prepared.learner.models.items():
        if kind.kind in ("frozen", "ema", "synced"):
            assert all(torch.equal(value, before[kind][name]) for name, value in model.state_dict().items())
    assert prepared.learner.advanced == [due(method)]


# --- numbers stay numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scale", [1e4, 0.0])
def test_wild_and_flat_logits_are_finite(key: str, scale: float) -> None:
    method = grouped(key, _steps(key))
    prepared = prepare(method, draw(method, SCORES), dtype=torch.float32)
    with torch.no_grad():
        for model in [prepared.learner.student, *prepared.learner.models.values()]:
            model.head.weight.copy_(model.head.weight.sign() * scale)
    result = run_update(prepared.trainer, due(method), prepared.batch.problems)
    for _, gradient in prepared.learner.steps:
        assert all(bool(torch.isfinite(part).all()) for part in gradient.values())
    loss = result.metrics["loss"]
    assert loss is None or abs(loss) < float("inf")


def test_responses_fit_the_longest() -> None:
    """Guards the batches of this file: some responses are cut off, most end."""
    batch = draw(grouped("grpo"), SCORES, seed=0)
    lengths: Sequence[int] = [len(ids) for ids in batch.responses]
    assert max(lengths) <= LONGEST and len(set(lengths)) > 2
