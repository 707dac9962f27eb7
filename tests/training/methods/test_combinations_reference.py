"""Parts of methods put together in ways no paper has: gates, weightings, ratios and masks against the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.methods import runs
from tests.training.methods.comparison import SINGLE, Loss, Teller, Tolerance, Weights, agree
from tests.training.methods.reference import sdpg, tip, usd
from tests.training.methods.reference.divergences import divergence
from tests.training.methods.reference.policy_gradient import (
    group_advantages,
    log_ratio_to_teacher,
    per_token,
    policy_gradient,
    rlsd,
)
from tests.training.methods.reference.rows import Row, ratio, token_mean
from tests.training.methods.runs import TEMPERATURE, draw, paper
from training.method import Method, override

TERM = "phases.student.terms.distill"
TERMS = "phases.student.terms"
PEERS = {"views.teacher.context": "peer_success"}
SCORES = (1.0, 0.0, None, 0.0, 0.0, 1.0)
MASKED = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0)
"""With peers as contexts the second group has none."""


def _grouped(key: str, changes: dict[str, Any] | None = None) -> Method:
    return paper(key, changes, prompts=2, group_size=3)


def _forward_kl(row: Row) -> Tensor:
    teacher, student = row.log_probs("teacher", TEMPERATURE).detach(), row.log_probs("student", TEMPERATURE)
    return divergence("forward_kl", teacher, student)


def _passes(gate: str, rows: Sequence[Row]) -> list[float | None]:
    """1 through the gate, 0 outside, None where it cannot tell."""
    advantages = group_advantages(rows, divide_by_std=False, epsilon=0)
    result: list[float | None] = []
    for row, advantage in zip(rows, advantages, strict=True):
        if row.reward is None or advantage is None:
            result.append(None)
        elif gate == "positive_advantage":
            result.append(float(advantage > 0))
        else:
            result.append(float((row.reward >= 0.5) == (gate == "passed")))
    return result


def _weighted(
    values: list[Tensor], weights: list[Tensor], reduction: str, normalise: str, rows: Sequence[Row]
) -> Tensor:
    """Reductions of weighted tokens; ``normalise`` says whether weights or tokens are counted."""
    if reduction == "token_mean":
        total = sum((w * v).sum() for w, v in zip(weights, values, strict=True))
        count = sum(float(w.sum()) if normalise == "weights" else len(w) for w in weights)
        assert isinstance(total, Tensor)
        return total / count
    means = []
    for value, weight in zip(values, weights, strict=True):
        count = float(weight.sum()) if normalise == "weights" else len(weight)
        if count > 0:
            means.append((weight * value).sum() / count)
    return torch.stack(means).mean()


@pytest.mark.parametrize("gate", ["positive_advantage", "passed", "failed"])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("normalise", ["weights", "tokens"])
def test_gates_of_distillation(gate: str, reduction: str, normalise: str) -> None:
    changes = {
        f"{TERM}.gate": gate,
        f"{TERM}.reduction": reduction,
        f"{TERM}.normalise": normalise,
        f"{TERM}.entry_clip": None,
    }
    method = _grouped("opsd", changes)

    def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        rows = tell.rollouts(now, begun)
        kept = [(row, up) for row, up in zip(rows, _passes(gate, rows), strict=True) if up is not None]
        weights = [per_token(up, row) for row, up in kept]
        return _weighted([_forward_kl(row) for row, _ in kept], weights, reduction, normalise, rows)

    agree(method, draw(method, SCORES), loss)


@pytest.mark.parametrize("normalise", ["weights", "tokens"])
def test_right_answers_of_the_teacher_alone(normalise: str) -> None:
    term = f"{TERMS}.imitate"
    method = _grouped("seq_kd", {f"{term}.gate": "passed", f"{term}.normalise": normalise})

    def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        rows = tell.rollouts(now, begun)
        kept = [(row, up) for row, up in zip(rows, _passes("passed", rows), strict=True) if up is not None]
        weights = [per_token(up, row) for row, up in kept]
        return _weighted([-row.log_prob("student") for row, _ in kept], weights, "token_mean", normalise, rows)

    agree(method, draw(method, SCORES), loss)


@pytest.mark.parametrize("exponent", [1.0, 2.5])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
def test_weights_by_position(exponent: float, reduction: str) -> None:
    changes = {
        f"{TERM}.weighting": {"kind": "position", "exponent": exponent},
        f"{TERM}.entry_clip": None,
        f"{TERM}.reduction": reduction,
    }
    method = _grouped("opsd", changes)

    def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        rows = tell.rollouts(now, begun)
        weights = [(torch.arange(1, len(row.ids) + 1, dtype=torch.float64) / len(row.ids)) ** exponent for row in rows]
        return _weighted([_forward_kl(row) for row in rows], weights, reduction, "weights", rows)

    agree(method, draw(method), loss)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("normalise", ["weights", "tokens"])
@pytest.mark.parametrize("company", [True, False])
def test_usd_on_rows_with_a_peer(reduction: str, normalise: str, company: bool) -> None:
    changes: dict[str, Any] = {
        **PEERS,
        f"{TERM}.weighting.price": 0.4,
        f"{TERM}.reduction": reduction,
        f"{TERM}.normalise": normalise,
    }
    method = _grouped("usd", changes)
    if company:
        terms = {name: term.model_dump() for name, term in method.phases["student"].terms.items()}
        method = override(method, TERMS, {**terms, "entropy": {"kind": "entropy", "coefficient": 0.0}})

    def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        rows = [row for row in tell.rollouts(now, begun) if row.sees("teacher")]
        tokens = usd.usd_tokens(rows, price=0.4, temperature=TEMPERATURE)
        return _weighted(tokens.loss, tokens.weight, reduction, normalise, rows)

    agree(method, draw(method, MASKED), loss)


@pytest.mark.parametrize("score", ["soft_or", "entropy", "overconfident"])
def test_tip_on_rows_with_a_peer(score: str) -> None:
    """Percentile, minimum and maximum are those of the tokens that take part."""
    method = _grouped("tip", {**PEERS, f"{TERM}.weighting.score": score, f"{TERM}.weighting.keep": 0.5})

    def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        rows = [row for row in tell.rollouts(now, begun) if row.sees("teacher")]
        return tip.tip(rows, keep=0.5, score=score, kind="forward_kl", entry_clip=0.05, temperature=TEMPERATURE)

    agree(method, draw(method, MASKED), loss)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("clip", [None, 1.1])
@pytest.mark.parametrize("estimator", ["k3", "urkl", "ufkl"])
def test_importance_of_a_sampled_kl(
    gradient: bool, clip: float | None, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradient and without a clip it is Skill-SD's ρ·ℓ, whose gradient has a part through ρ."""
    monkeypatch.setattr(runs, "RATE", 0.05)
    # 1/w multiplies the rounding of log w: in fp32 the gradient is right to 1e-5 of its size.
    single = SINGLE if estimator == "urkl" else Tolerance(1e-5, 1e-5, relative=True)
    term = {
        "kind": "sampled_kl",
        "against": "teacher",
        "estimator": estimator,
        "importance": {"clip": clip, "gradient": gradient},
    }
    method = _grouped("opsd", {TERM: term, "batch.step_prompts": 1})

    def step(group: int) -> Loss:
        def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
            rows = tell.rollouts(now, begun, [group], old=True)
            values = []
            for row in rows:
                log_w = row.log_prob("student", TEMPERATURE) - row.log_prob("teacher", TEMPERATURE).detach()
                if estimator == "k3":
                    value = torch.exp(-log_w) - 1 + log_w
                else:
                    renamed = Row(row.ids, {**row.logits, "reference": row.logits["teacher"]})
                    value = sdpg.kl_surrogate(renamed, estimator, TEMPERATURE)
                weight = ratio(row, TEMPERATURE)
                weight = weight if clip is None else torch.clamp(weight, max=clip)
                values.append((weight if gradient else weight.detach()) * value)
            return token_mean(rows, values)

        return loss

    agree(method, draw(method), [step(0), step(1)], single=single)


@pytest.mark.parametrize(("low", "high"), [(None, None), (-0.5, 0.5), (0.0, None)])
@pytest.mark.parametrize("gate", ["all", "positive_advantage"])
def test_bounded_log_ratio_as_advantage(low: float | None, high: float | None, gate: str) -> None:
    advantage = {"kind": "teacher_log_ratio", "low": low, "high": high}
    term = {"kind": "policy_gradient", "advantage": advantage, "gate": gate}
    method = _grouped("opsd", {TERM: term, "batch.step_prompts": 1})

    def step(group: int) -> Loss:
        def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
            rows = tell.rollouts(now, begun, [group], old=True)
            passes = [1.0] * len(rows) if gate == "all" else _passes(gate, rows)
            advantages: list[Tensor | None] = []
            for row, up in zip(rows, passes, strict=True):
                gap = row.log_prob("teacher", TEMPERATURE) - row.log_prob("student", TEMPERATURE)
                bounded = gap.detach() if low is None and high is None else torch.clamp(gap.detach(), low, high)
                advantages.append(None if up is None else up * bounded)
            return policy_gradient(rows, advantages, temperature=TEMPERATURE)

        return loss

    agree(method, draw(method, SCORES), [step(0), step(1)])


@pytest.mark.parametrize("steps", [True, False])
def test_rlsd_leaves_rows_without_a_peer_their_advantage(steps: bool) -> None:
    """In the first group the only success has no peer; its failures have."""
    method = _grouped("rlsd", {**PEERS, "batch.step_prompts": 1 if steps else None})

    def whole(tell: Teller, now: Weights, begun: Weights) -> Tensor:
        return rlsd(tell.rollouts(now, begun), temperature=TEMPERATURE)

    def step(group: int) -> Loss:
        return lambda tell, now, begun: rlsd(tell.rollouts(now, begun, [group], old=True), temperature=TEMPERATURE)

    agree(method, draw(method, (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)), [step(0), step(1)] if steps else whole)


def test_sdpg_near_the_policy_that_drew() -> None:
    """Appendix A.3: distillation and reference term times sg ρ."""
    weight = {"clip": None, "gradient": False}
    changes = {
        f"{TERMS}.distill.coefficient": 0.7,
        f"{TERMS}.distill.importance": weight,
        f"{TERMS}.reference_kl.coefficient": 0.4,
        f"{TERMS}.reference_kl.importance": weight,
        "batch.step_prompts": 1,
    }
    method = _grouped("sdpg_urkl", changes)

    def step(group: int) -> Loss:
        def loss(tell: Teller, now: Weights, begun: Weights) -> Tensor:
            rows = tell.rollouts(now, begun, [group], old=True)
            plain = group_advantages(rows, divide_by_std=True, epsilon=1e-6)
            spread = [None if a is None else per_token(a, row) for a, row in zip(plain, rows, strict=True)]
            total = policy_gradient(rows, spread, dual=10.0, temperature=TEMPERATURE)
            tokens = sum(len(row.ids) for row in rows)
            for row, advantage in zip(rows, plain, strict=True):
                rho = ratio(row, TEMPERATURE).detach()
                if advantage is not None and advantage > 0:
                    teacher = row.log_probs("teacher", TEMPERATURE).detach()
                    kl = divergence("reverse_kl", teacher, row.log_probs("student", TEMPERATURE))
                    total = total + 0.7 * (rho * kl).sum() / tokens
                total = total + 0.4 * (rho * sdpg.kl_surrogate(row, "urkl", TEMPERATURE)).sum() / tokens
            return total

        return loss

    agree(method, draw(method, (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)), [step(0), step(1)])


def test_log_ratio_is_to_the_policy_that_drew() -> None:
    """Guards the helper: with an old policy the present student is not read."""
    logits: dict[str, Tensor | None] = {"student": torch.zeros(1, 2), "teacher": torch.tensor([[1.0, 0.0]])}
    row = Row((0,), logits, old=(-3.0,))
    assert float(log_ratio_to_teacher(row)) == pytest.approx(float(row.log_prob("teacher")) + 3.0)
