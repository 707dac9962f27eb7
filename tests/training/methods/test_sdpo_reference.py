"""SDPO and SR-OPSD: whole updates against the references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.methods.comparison import RENYI, Teller, Weights, agree, rows_at_start
from tests.training.methods.reference import sdpo, sr_opsd
from tests.training.methods.reference.policy_gradient import group_advantages, per_token, policy_gradient
from tests.training.methods.runs import TEMPERATURE, draw, paper, run
from training.methods.sdpo import SDPO_CODE, hybrid, trust_region

TERM = "phases.student.terms.distill"
TERMS = "phases.student.terms"

MIXED = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0)
"""Scores of two groups of three; the second has no success, so none of its rows has a peer's."""


def _grouped(key: str, changes: dict[str, Any] | None = None) -> Any:
    return paper(key, changes, prompts=2, group_size=3)


@pytest.mark.parametrize(
    ("key", "alpha", "k"),
    [
        ("sdpo_science", 0.5, 100),
        ("sdpo_science", 0.5, 5),
        ("sdpo_code", 1, 20),
        ("sdpo_code", 1, 4),
        ("sdpo_ttt", 1, 7),
    ],
)
@pytest.mark.parametrize("rest", ["tail", "renormalise"])
def test_sdpo(key: str, alpha: float, k: int, rest: str) -> None:
    method = _grouped(key, {f"{TERM}.support.k": k, f"{TERM}.support.rest": rest})
    finished = agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sdpo.sdpo(
            tell.rollouts(now, begun), alpha=alpha, k=k, rest=rest, sampler_clip=2.0, temperature=TEMPERATURE
        ),
    )
    rows = rows_at_start(finished)
    assert [row.sees("teacher") for row in rows] == [True, True, True, False, False, False]


def test_sdpo_in_several_steps_weighs_by_the_ratio() -> None:
    method = _grouped("sdpo_science", {f"{TERM}.support.k": 5, "batch.step_prompts": 1})

    def step(group: int) -> Any:
        def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
            rows = tell.rollouts(now, begun, [group], old=True)
            return sdpo.sdpo(rows, alpha=0.5, k=5, sampler_clip=2.0, temperature=TEMPERATURE)

        return loss

    agree(method, draw(method, (1.0, 0.0, 1.0, 0.0, 1.0, 1.0)), [step(0), step(1)])


def test_sdpo_against_the_trust_region_teacher() -> None:

    term = SDPO_CODE.phases["student"].terms["distill"]
    changed = trust_region(term)  # type: ignore[arg-type]
    changed["mix"]["share"] = 0.3
    changed["support"]["k"] = 5
    method = _grouped("sdpo_code", {TERM: changed})

    def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
        rows = [
            row.__class__(
                row.ids,
                {
                    "student": row.logits["student"],
                    "teacher": row.logits["live"],
                    "reference": row.logits["initial"],
                },
                drawn=row.drawn,
            )
            for row in tell.rollouts(now, begun)
        ]
        return sdpo.sdpo(rows, alpha=1, k=5, sampler_clip=2.0, trust_region=0.3, temperature=TEMPERATURE)

    agree(method, draw(method, MIXED), loss)


def test_sdpo_on_the_sampled_token() -> None:
    sampled = {"kind": "policy_gradient", "advantage": {"kind": "teacher_log_ratio"}}
    method = _grouped("sdpo_code", {TERM: sampled})
    agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sdpo.sdpo_sampled(tell.rollouts(now, begun), temperature=TEMPERATURE),
        values=False,
    )


def test_sdpo_with_grpo() -> None:

    terms = hybrid(SDPO_CODE.phases["student"].terms["distill"], 0.9)  # type: ignore[arg-type]
    method = _grouped("sdpo_code", {TERMS: terms})

    def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
        rows = tell.rollouts(now, begun)
        plain = group_advantages(rows, divide_by_std=False, epsilon=0)
        advantages = [None if a is None else per_token(a, row) for a, row in zip(plain, rows, strict=True)]
        reward = policy_gradient(rows, advantages, high=0.28, sampler_clip=2.0, temperature=TEMPERATURE)
        distilled = sdpo.sdpo(rows, alpha=1, k=20, sampler_clip=2.0, temperature=TEMPERATURE)
        return 0.9 * reward + 0.1 * distilled

    agree(method, draw(method, MIXED), loss)


@pytest.mark.parametrize("order", ["support_first", "mix_first"])
@pytest.mark.parametrize("k", [6, 100])
def test_sr_opsd_science(order: str, k: int) -> None:
    method = _grouped("sr_opsd_science", {f"{TERM}.mix.order": order, f"{TERM}.support.k": k})
    agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sr_opsd.sr_opsd(
            tell.rollouts(now, begun),
            k=k,
            order=order,
            sampler_clip=2.0,
            entropy_bonus=1e-5,
            temperature=TEMPERATURE,
        ),
        single=RENYI,
    )


@pytest.mark.parametrize("order", ["support_first", "mix_first"])
@pytest.mark.parametrize("token_clip", [0.05, 1.0])
def test_sr_opsd_math(order: str, token_clip: float) -> None:
    changes = {f"{TERM}.mix.order": order, f"{TERM}.support.k": 6, f"{TERM}.token_clip": token_clip}
    method = _grouped("sr_opsd_math", changes)
    agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sr_opsd.sr_opsd(
            tell.rollouts(now, begun),
            k=6,
            rest="renormalise",
            order=order,
            token_clip=token_clip,
            importance_clip=None,
            sampler_clip=2.0,
            entropy_bonus=1e-5,
            temperature=TEMPERATURE,
        ),
        single=RENYI,
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_share_and_order_of_sr_opsd(share: float, rho: float) -> None:
    changes = {
        f"{TERM}.mix.share": share,
        f"{TERM}.divergence.order": rho,
        f"{TERM}.support.k": 6,
    }
    method = _grouped("sr_opsd_science", changes)
    agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sr_opsd.sr_opsd(
            tell.rollouts(now, begun),
            share=share,
            renyi_order=rho,
            k=6,
            sampler_clip=2.0,
            entropy_bonus=1e-5,
            temperature=TEMPERATURE,
        ),
        single=RENYI,
    )


def test_the_reference_of_sr_opsd_may_see_the_plain_prompt() -> None:
    method = _grouped("sr_opsd_science", {"views.reference.context": "none", f"{TERM}.support.k": 6})
    finished = agree(
        method,
        draw(method, MIXED),
        lambda tell, now, begun: sr_opsd.sr_opsd(
            tell.rollouts(now, begun), k=6, sampler_clip=2.0, entropy_bonus=1e-5, temperature=TEMPERATURE
        ),
        single=RENYI,
    )
    shown = run(_grouped("sr_opsd_science", {f"{TERM}.support.k": 6}), draw(method, MIXED))
    assert finished.metrics["loss"] != pytest.approx(shown.metrics["loss"] or 0, rel=1e-5)
    assert rows_at_start(finished)[0].sees("reference")
