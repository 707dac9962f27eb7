"""Weights, advantages, controllers and preferences of whole batches against the references."""

from __future__ import annotations

import random

import pytest
import torch

from tests.training.methods.reference import policy_gradient, sds, tip, usd, vpd
from tests.training.methods.reference.divergences import divergence, entropy
from tests.training.methods.reference.random_rows import random_rows
from tests.training.methods.reference.rows import Row
from training.controllers import Observed, initial, moved
from training.credit.alignment import SIMILARITIES, compared_ids
from training.credit.modulation import grsd, rlsd
from training.credit.preference import preference_loss
from training.credit.rewards import reward_of
from training.credit.selection import token_scores, top_tokens
from training.losses.advantages import group_advantages
from training.method import GrsdModulation, Overlong, Preference, Reward, RlsdModulation, TopTokens, UsdController

EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("name", [*sds.SIMILARITIES])
def test_similarities(name: str) -> None:
    draw = random.Random(0)
    for _ in range(60):
        texts = [[draw.randrange(5) for _ in range(draw.randrange(9))] for _ in range(2)]
        if not any(texts):
            continue
        ours = SIMILARITIES[name](*texts)  # type: ignore[index]
        assert ours == pytest.approx(sds.SIMILARITIES[name](*texts), abs=1e-12)


def test_the_end_token_is_left_out_of_similarities() -> None:
    rollout, reference = compared_ids((1, 2, 0), (3, 0), frozenset({0}), None)
    assert 1 - SIMILARITIES["token_f1"](rollout, reference) == sds.anchor_weights([((1, 2, 0), (3, 0))], end=0)[0] == 1


@pytest.mark.parametrize("divide", [True, False])
def test_group_advantages(divide: bool) -> None:
    draw = random.Random(1)
    for _ in range(20):
        rewards = [draw.choice([0.0, 1.0, 0.25, None]) for _ in range(12)]
        groups = [draw.randrange(3) for _ in rewards]
        rows = [Row((0,), {}, group=g, reward=r) for g, r in zip(groups, rewards, strict=True)]
        scored = torch.tensor([r is not None for r in rewards])
        ours = group_advantages(
            torch.tensor([r or 0.0 for r in rewards], dtype=torch.float64),
            torch.tensor(groups),
            scored,
            divide_by_std=divide,
            epsilon=1e-6,
        )
        expected = policy_gradient.group_advantages(rows, divide_by_std=divide, epsilon=1e-6)
        assert ours.keep.tolist() == [value is not None for value in expected]
        assert ours.advantage.tolist() == pytest.approx([value or 0.0 for value in expected], rel=1e-12, abs=1e-15)


def test_overlong_penalty() -> None:
    reward = Reward(on_fail=-1.0, on_pass=1.0, overlong=Overlong(cache_tokens=4, penalty=0.7))
    for tokens in range(1, 14):
        penalty = policy_gradient.overlong_penalty(tokens, longest=12, cache=4, penalty=0.7)
        assert reward_of(reward, 0.25, tokens, 12) == pytest.approx(-0.5 + penalty)


def _tokens(rows: list[Row], advantages: list[float]) -> tuple[torch.Tensor, ...]:
    gap = torch.cat([policy_gradient.log_ratio_to_teacher(row) for row in rows])
    counts = torch.tensor([len(row.ids) for row in rows])
    sequence = torch.repeat_interleave(torch.arange(len(rows)), counts)
    return torch.tensor(advantages, dtype=torch.float64)[sequence], gap, sequence


def test_rlsd_modulation() -> None:
    rows = random_rows(0, old=True)
    advantages = [1.5, -0.5, 0.0, 0.7, -2.0, 0.1]
    advantage, gap, _ = _tokens(rows, advantages)
    for share, bound in ((0.5, 0.2), (1.0, 0.9), (0.0, 0.2)):
        ours = rlsd(share, RlsdModulation(share=share, bound=bound), advantage, gap)
        expected = [
            policy_gradient.rlsd_advantage(a, policy_gradient.log_ratio_to_teacher(row), share=share, bound=bound)
            for a, row in zip(advantages, rows, strict=True)
        ]
        torch.testing.assert_close(ours, torch.cat(expected), **EXACT)


@pytest.mark.parametrize("level", ["turn", "token"])
@pytest.mark.parametrize("normalise", ["group", "none"])
@pytest.mark.parametrize(("bound", "dead_zone"), [(0.2, 0.0), (3.0, 0.6)])
def test_grsd_modulation(level: str, normalise: str, bound: float, dead_zone: float) -> None:
    rows = random_rows(1, rewards=(1.0, 0.0, 1.0, 1.0, 1.0, 1.0))
    rows[2] = Row(rows[2].ids, {**rows[2].logits, "teacher": None}, 0, 1.0)
    shown = [
        row if row.sees("teacher") else Row(row.ids, {**row.logits, "teacher": row.logits["student"]}) for row in rows
    ]
    advantages = [0.6, -1.2, 0.6, 0.3, -0.3, 0.0]
    advantage, gap, sequence = _tokens(shown, advantages)
    group = torch.tensor([row.group for row in rows])[sequence]
    # Group 0 is mixed, its last row has no guidance; group 1 has no failure.
    guided = sequence < 2
    spec = GrsdModulation(share=0.5, bound=bound, dead_zone=dead_zone, level=level, normalise=normalise)  # type: ignore[arg-type]
    ours = grsd(0.5, spec, advantage, gap, sequence, group, guided)
    expected = policy_gradient.grsd_advantages(
        rows, advantages, share=0.5, bound=bound, dead_zone=dead_zone, level=level, normalise=normalise
    )
    torch.testing.assert_close(ours, torch.cat([a for a in expected if a is not None]), **EXACT)
    assert bool((torch.sign(ours) == torch.sign(advantage)).all())


def test_grsd_by_tokens_without_normalisation_is_rlsd() -> None:
    rows = random_rows(2)
    advantage, gap, sequence = _tokens(rows, [1.0, -1.0, 0.5, -0.5, 2.0, -2.0])
    every = torch.ones_like(sequence, dtype=torch.bool)
    spec = GrsdModulation(bound=0.2, level="token", normalise="none")
    ours = grsd(0.5, spec, advantage, gap, sequence, torch.zeros_like(sequence), every)
    torch.testing.assert_close(ours, rlsd(0.5, RlsdModulation(share=0.5, bound=0.2), advantage, gap), **EXACT)


@pytest.mark.parametrize("spec", [GrsdModulation(level="turn"), GrsdModulation(level="token"), RlsdModulation()])
def test_a_teacher_that_agrees_changes_no_advantage(spec: GrsdModulation | RlsdModulation) -> None:
    advantage, gap, sequence = _tokens(random_rows(3), [1.0, -1.0, 0.5, -0.5, 2.0, 0.0])
    nothing, every = torch.zeros_like(gap), torch.ones_like(sequence, dtype=torch.bool)
    if isinstance(spec, RlsdModulation):
        ours = rlsd(0.5, spec, advantage, nothing)
    else:
        ours = grsd(0.5, spec, advantage, nothing, sequence, sequence, every)
    assert torch.equal(ours, advantage)


def test_unguided_rows_keep_their_advantage() -> None:
    advantage, gap, sequence = _tokens(random_rows(3), [1.0, -1.0, 0.5, -0.5, 2.0, 0.0])
    none = torch.zeros_like(sequence, dtype=torch.bool)
    assert torch.equal(grsd(0.5, GrsdModulation(), advantage, gap, sequence, sequence, none), advantage)


@pytest.mark.parametrize("score", ["soft_or", "entropy", "overconfident"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["forward_kl", "reverse_kl"])
def test_tip_selection(score: str, keep: float, kind: str) -> None:
    rows = random_rows(4, lengths=(9, 1, 12, 4))
    pairs = [(row.log_probs("teacher"), row.log_probs("student").detach()) for row in rows]
    spec = TopTokens(keep=keep, score=score)  # type: ignore[arg-type]
    scores = token_scores(
        spec,
        torch.cat([entropy(s) for _, s in pairs]),
        torch.cat([divergence(kind, t, s) for t, s in pairs]),
        torch.cat([divergence("forward_kl", t, s) for t, s in pairs]),
    )
    sequence = torch.repeat_interleave(torch.arange(4), torch.tensor([9, 1, 12, 4]))
    expected = tip.selection(rows, keep=keep, score=score, kind=kind)
    assert top_tokens(scores, sequence, keep).tolist() == [kept for row in expected for kept in row]


def test_usd_controller_over_many_updates() -> None:
    draw, spec = random.Random(5), UsdController()
    values = initial(spec)
    price, share = 0.0, 0.8
    for _ in range(80):
        load = draw.choice([0.0, 0.1, 0.3, 0.6, 4.0])
        values = moved(spec, values, Observed(loads={"distill": (load * 7, 7)}))
        price, share = usd.duals(price, share, load)
        assert (values["price"], values["share"]) == pytest.approx((price, share), abs=1e-12)
        assert 0.1 <= values["share"] <= 1 and values["price"] >= 0


def test_load_above_capacity_raises_the_price_and_hides_more() -> None:
    values = {"price": 0.1, "share": 0.5}
    more = moved(UsdController(), values, Observed(loads={"distill": (0.5, 1)}))
    less = moved(UsdController(), values, Observed(loads={"distill": (0.1, 1)}))
    assert more["price"] > 0.1 and more["share"] < 0.5
    assert less["price"] < 0.1 and less["share"] > 0.5


@pytest.mark.parametrize("length", ["sum", "mean"])
@pytest.mark.parametrize("bound", [None, 0.3])
@pytest.mark.parametrize("rewards", [(1.0, 0.0, 1.0, 0.0, None, 1.0), (1.0,) * 6, (0.0,) * 6])
@pytest.mark.parametrize(("rate", "before"), [(1.0, None), (1.0, 0.2), (0.1, None), (0.1, 0.2)])
def test_preference(
    length: str, bound: float | None, rewards: tuple[float | None, ...], rate: float, before: float | None
) -> None:
    rows = random_rows(6, views=("teacher", "prior"), rewards=rewards)
    for row in rows:
        teacher = row.logits["teacher"]
        assert teacher is not None
        teacher.requires_grad_()
    one_class = len({r for r in rewards if r is not None}) == 1
    # With one class missing the page lets the running mean stand alone where there is one.
    keeps_running = one_class and rate < 1 and before is not None
    step = vpd.e_step(
        rows,
        beta=0.3,
        length=length,
        bound=bound,
        shift_rate=0.0 if keeps_running else rate,
        shift_before=before,
    )
    ours = preference_loss(
        Preference(beta=0.3, length=length, bound=bound, shift_rate=rate),  # type: ignore[arg-type]
        torch.stack([(row.log_prob("teacher") - row.log_prob("prior")).sum().detach() for row in rows]),
        torch.tensor([len(row.ids) for row in rows]),
        torch.tensor([(r or 0.0) >= 0.5 for r in rewards]),
        torch.tensor([r is not None for r in rewards]),
        before,
    )
    assert ours.loss == pytest.approx(float(step.loss.detach()), rel=1e-12)
    assert ours.shift == pytest.approx(step.shift, rel=1e-12)
    # ∂L/∂log q(y_t): push the slopes through log q and compare the gradients on the teacher's logits.
    pushed = sum(float(slope) * row.log_prob("teacher").sum() for slope, row in zip(ours.slope, rows, strict=True))
    assert isinstance(pushed, torch.Tensor)
    leaves = [logits for row in rows if (logits := row.logits["teacher"]) is not None]
    expected = torch.autograd.grad(step.loss, leaves, allow_unused=True)
    for mine, theirs in zip(torch.autograd.grad(pushed, leaves), expected, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs, **EXACT)
