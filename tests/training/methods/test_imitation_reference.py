"""SFT, distillation on references and on the teacher's samples: whole updates against the references."""

from __future__ import annotations

import pytest

from tests.training.methods.comparison import agree
from tests.training.methods.reference import imitation
from tests.training.methods.runs import TEMPERATURE, draw, paper
from training.method import FrozenWeights, StudentWeights

TERM = "phases.student.terms.distill"


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
def test_sft(reduction: str) -> None:
    method = paper("sft", {"phases.student.terms.imitate.reduction": reduction})
    agree(
        method,
        draw(method),
        lambda tell, now, begun: imitation.sft(tell.references(now, begun), reduction=reduction),
    )


def test_soft_distillation_on_references() -> None:
    method = paper("off_policy")
    finished = agree(
        method,
        draw(method),
        lambda tell, now, begun: imitation.soft_distillation(
            tell.references(now, begun), kind="forward_kl", entry_clip=0.05, temperature=TEMPERATURE
        ),
    )
    assert not finished.learner.drawn_by


def test_soft_distillation_with_a_skew_divergence_by_sequences() -> None:
    changes = {
        f"{TERM}.divergence": {"kind": "jsd", "beta": 0.2},
        f"{TERM}.entry_clip": None,
        f"{TERM}.reduction": "sequence_mean",
    }
    method = paper("off_policy", changes)
    agree(
        method,
        draw(method),
        lambda tell, now, begun: imitation.soft_distillation(
            tell.references(now, begun),
            kind="jsd",
            parameter=0.2,
            temperature=TEMPERATURE,
            reduction="sequence_mean",
        ),
    )


def test_sequence_distillation_draws_from_the_teacher() -> None:
    method = paper("seq_kd")
    finished = agree(method, draw(method), lambda tell, now, begun: imitation.sft(tell.rollouts(now, begun)))
    assert finished.learner.drawn_by == [FrozenWeights()]
    assert StudentWeights() not in finished.learner.drawn_by
