"""GRPO and its kin, RLSD, GRSD's credit, SDPG: whole updates against the references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.training.methods import runs
from tests.training.methods.comparison import Loss, Teller, Weights, agree
from tests.training.methods.reference import sdpg
from tests.training.methods.reference.policy_gradient import (
    dapo,
    dr_grpo,
    group_advantages,
    grpo,
    grsd_advantages,
    overlong_penalty,
    per_token,
    policy_gradient,
    rlsd,
)
from tests.training.methods.reference.rows import Row
from tests.training.methods.runs import LONGEST, TEMPERATURE, Batch, draw, paper
from training.method import Method
from training.methods.grpo import GRPO

TERM = "phases.student.terms.reward"
TERMS = "phases.student.terms"

SCORES = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
GRADED = (1.0, 0.25, None, 0.0, 1.0, 0.5)
"""Partial credit, and one rollout that could not be scored."""

RowLoss = Callable[[Sequence[Row]], torch.Tensor]


def _grouped(key: str, changes: dict[str, Any] | None = None) -> Method:
    return paper(key, changes, prompts=2, group_size=3)


def once(loss: RowLoss) -> Loss:
    """One step on the whole batch, strictly on-policy."""
    return lambda tell, now, begun: loss(tell.rollouts(now, begun))


def in_steps(loss: RowLoss, groups: int = 2) -> list[Loss]:
    """One step a group, with the ratio to the weights at the start of the batch."""

    def step(group: int) -> Loss:
        def value(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
            return loss(tell.rollouts(now, begun, [group], old=True))

        return value

    return [step(group) for group in range(groups)]


@pytest.mark.parametrize("scores", [SCORES, GRADED])
def test_grpo(scores: tuple[float | None, ...]) -> None:
    method = _grouped("grpo")
    agree(method, draw(method, scores), once(lambda rows: grpo(rows, temperature=TEMPERATURE)))


@pytest.mark.parametrize("kl", [0.04, 0.3])
def test_grpo_with_a_reference_kl(kl: float) -> None:
    terms = _with_reference_kl(kl)
    method = _grouped("grpo", {TERMS: terms})
    agree(method, draw(method, SCORES), once(lambda rows: grpo(rows, kl=kl, temperature=TEMPERATURE)))


def _with_reference_kl(kl: float) -> dict[str, Any]:

    terms: dict[str, Any] = {name: dict(term) for name, term in GRPO.ablations[TERMS][0].items()}
    terms["reference_kl"]["coefficient"] = kl
    return terms


def test_grpo_in_several_steps() -> None:
    method = _grouped("grpo", {"batch.step_prompts": 1})
    agree(method, draw(method, SCORES), in_steps(lambda rows: grpo(rows, temperature=TEMPERATURE)))


def test_dr_grpo() -> None:
    method = _grouped("dr_grpo")
    agree(method, draw(method, GRADED), once(lambda rows: dr_grpo(rows, longest=LONGEST, temperature=TEMPERATURE)))


def _penalised(batch: Batch, cache: int) -> list[float | None]:
    return [
        None if score is None else score + overlong_penalty(len(ids), longest=LONGEST, cache=cache)
        for score, ids in zip(batch.scores, batch.responses, strict=True)
    ]


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("steps", [True, False])
def test_dapo(drop: bool, steps: bool) -> None:
    changes = {
        "reward.overlong.cache_tokens": 4,
        "reward.truncated": "drop" if drop else "keep",
        "batch.step_prompts": 1 if steps else None,
    }
    method = _grouped("dapo", changes)
    batch = draw(method, SCORES, seed=8)
    assert any(len(ids) > LONGEST - 4 for ids in batch.responses)

    def loss(rows: Sequence[Row]) -> torch.Tensor:
        return dapo(rows, epsilon=1e-6, drop_truncated=drop, temperature=TEMPERATURE)

    agree(method, batch, in_steps(loss) if steps else once(loss), rewards=_penalised(batch, 4))


def test_dapo_with_a_dual_clip_far_off_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RATE", 30.0)
    method = _grouped("dapo", {"reward.overlong": None, f"{TERM}.dual_clip": 1.5, "batch.step_prompts": 1})
    batch = draw(method, SCORES)
    agree(
        method,
        batch,
        in_steps(lambda rows: dapo(rows, epsilon=1e-6, dual=1.5, drop_truncated=True, temperature=TEMPERATURE)),
    )


def test_improved_grpo() -> None:
    method = _grouped("grpo_improved")

    def loss(rows: Sequence[Row]) -> torch.Tensor:
        plain = group_advantages(rows, divide_by_std=False, epsilon=0)
        advantages = [None if a is None else per_token(a, row) for a, row in zip(plain, rows, strict=True)]
        return policy_gradient(rows, advantages, high=0.28, sampler_clip=2.0, temperature=TEMPERATURE)

    agree(method, draw(method, GRADED), once(loss))


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.2), (1.0, 0.9)])
@pytest.mark.parametrize("steps", [True, False])
def test_rlsd(share: float, bound: float, steps: bool) -> None:
    changes = {
        f"{TERM}.modulation.share": share,
        f"{TERM}.modulation.bound": bound,
        "batch.step_prompts": 1 if steps else None,
    }
    method = _grouped("rlsd", changes)

    def loss(rows: Sequence[Row]) -> torch.Tensor:
        return rlsd(rows, share=share, bound=bound, temperature=TEMPERATURE)

    agree(method, draw(method, SCORES), in_steps(loss) if steps else once(loss))


@pytest.mark.parametrize("level", ["turn", "token"])
@pytest.mark.parametrize("normalise", ["group", "none"])
@pytest.mark.parametrize("bound", [0.2, 3.0])
def test_grsd_credit(level: str, normalise: str, bound: float) -> None:
    modulation = {"kind": "grsd", "level": level, "normalise": normalise, "bound": bound, "dead_zone": 0.05}
    method = _grouped("rlsd", {f"{TERM}.modulation": modulation})

    def loss(rows: Sequence[Row]) -> torch.Tensor:
        plain = group_advantages(rows, divide_by_std=True, epsilon=1e-6)
        advantages = grsd_advantages(
            rows,
            plain,
            level=level,
            normalise=normalise,
            bound=bound,
            dead_zone=0.05,
            temperature=TEMPERATURE,
        )
        return policy_gradient(rows, advantages, temperature=TEMPERATURE)

    # The second group has no failure: its advantages are 0 and its rows are not guided.
    agree(method, draw(method, (1.0, 0.0, 0.0, 1.0, 1.0, 0.75)), once(loss))


@pytest.mark.parametrize("key", ["sdpg_urkl", "sdpg_ufkl"])
@pytest.mark.parametrize("update", [1, 25, 300])
def test_sdpg(key: str, update: int) -> None:
    method = _grouped(key)
    agree(
        method,
        draw(method, SCORES),
        once(
            lambda rows: sdpg.sdpg(
                rows,
                beta=sdpg.schedule(update),
                surrogate=key.removeprefix("sdpg_"),
                temperature=TEMPERATURE,
            )
        ),
        update=update,
    )


STRONG = {f"{TERMS}.distill.coefficient": 0.7, f"{TERMS}.reference_kl.coefficient": 0.4}


@pytest.mark.parametrize("estimator", ["urkl", "ufkl", "rkl", "fkl"])
@pytest.mark.parametrize("gate", [True, False])
def test_sdpg_with_terms_of_one_size(estimator: str, gate: bool) -> None:
    changes = {
        **STRONG,
        f"{TERMS}.reference_kl.estimator": estimator,
        f"{TERMS}.distill.gate": "positive_advantage" if gate else "all",
        f"{TERMS}.distill.token_clip": 1.5,
        f"{TERMS}.distill.temperature": "sampling",
    }
    method = _grouped("sdpg_urkl", changes)
    agree(
        method,
        draw(method, SCORES),
        once(
            lambda rows: sdpg.sdpg(
                rows, beta=0.7, alpha=0.4, surrogate=estimator, gate=gate, token_clip=1.5, temperature=TEMPERATURE
            )
        ),
    )


def test_sdpg_in_several_steps() -> None:
    method = _grouped("sdpg_urkl", {**STRONG, "batch.step_prompts": 1})
    agree(
        method,
        draw(method, SCORES),
        in_steps(lambda rows: sdpg.sdpg(rows, beta=0.7, alpha=0.4, temperature=TEMPERATURE)),
    )
