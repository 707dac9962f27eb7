"""OPSD and its relatives with a frozen or averaged teacher: whole updates against the references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.methods.comparison import Teller, Weights, agree, rows_at_start
from tests.training.methods.reference import imitation, opsd, paint, sds, tip, usd
from tests.training.methods.reference.divergences import divergence, likeliest, on_support
from tests.training.methods.reference.rows import Row, sequence_mean, token_mean
from tests.training.methods.runs import TEMPERATURE, draw, paper, prepare, run
from training.base_models.tokenizer import END, VOCABULARY
from training.methods.sds import MIXED
from training.state import TrainingState
from training.update import run_update

TERM = "phases.student.terms.distill"
TERMS = "phases.student.terms"


def test_opsd_v3() -> None:
    method = paper("opsd")
    agree(
        method,
        draw(method),
        lambda tell, now, begun: opsd.opsd_v3(tell.rollouts(now, begun), temperature=TEMPERATURE),
    )


def test_opsd_v1() -> None:
    method = paper("opsd_v1")
    agree(
        method,
        draw(method),
        lambda tell, now, begun: opsd.opsd_v1(tell.rollouts(now, begun), temperature=TEMPERATURE),
    )


@pytest.mark.parametrize("kind", ["forward_kl", "reverse_kl", "jsd", "renyi", "reverse_renyi"])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
def test_divergences_of_opsd(kind: str, reduction: str) -> None:
    spec: dict[str, Any] = {
        "jsd": {"kind": "jsd", "beta": 0.3},
        "renyi": {"kind": "renyi", "order": 0.3},
        "reverse_renyi": {"kind": "renyi", "order": 0.3, "direction": "student||target"},
    }.get(kind, {"kind": kind})
    method = paper("opsd", {f"{TERM}.divergence": spec, f"{TERM}.entry_clip": None, f"{TERM}.reduction": reduction})
    agree(
        method,
        draw(method, seed=1),
        lambda tell, now, begun: imitation.soft_distillation(
            tell.rollouts(now, begun), kind=kind, parameter=0.3, temperature=TEMPERATURE, reduction=reduction
        ),
    )


SAMPLED = {"kind": "policy_gradient", "advantage": {"kind": "teacher_log_ratio"}}


def test_opsd_on_the_sampled_token() -> None:
    method = paper("opsd", {TERM: SAMPLED})
    finished = agree(
        method,
        draw(method),
        lambda tell, now, begun: opsd.sampled_token(tell.rollouts(now, begun), temperature=TEMPERATURE),
        values=False,
    )
    expected = opsd.sampled_advantage(rows_at_start(finished), temperature=TEMPERATURE)
    assert finished.metrics["loss"] == pytest.approx(expected, rel=1e-9)


def test_sdft() -> None:
    method = paper("sdft")
    agree(method, draw(method), lambda tell, now, begun: opsd.sdft(tell.rollouts(now, begun), temperature=TEMPERATURE))


def test_sdft_skips_first_tokens_and_renormalises_the_teachers_top() -> None:

    changes = {
        f"{TERM}.support": {"kind": "top_k", "k": 6, "of": "target", "rest": "renormalise"},
        f"{TERM}.skip_tokens": 2,
    }
    method = paper("sdft", changes)

    def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
        rows, values = tell.rollouts(now, begun), []
        for row in rows:
            teacher, student = row.log_probs("teacher", TEMPERATURE), row.log_probs("student", TEMPERATURE)
            ids = likeliest(teacher, 6)
            value = divergence(
                "forward_kl", on_support(teacher, ids, "renormalise"), on_support(student, ids, "renormalise")
            )
            values.append(value[2:])
        return token_mean(rows, values)

    agree(method, draw(method), loss)


# --- TIP, PAINT-style ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["soft_or", "entropy", "overconfident"])
@pytest.mark.parametrize("keep", [0.2, 0.5])
def test_tip(score: str, keep: float) -> None:
    method = paper("tip", {f"{TERM}.weighting.score": score, f"{TERM}.weighting.keep": keep})
    agree(
        method,
        draw(method, seed=2),
        lambda tell, now, begun: tip.tip(
            tell.rollouts(now, begun),
            keep=keep,
            score=score,
            kind="forward_kl",
            entry_clip=0.05,
            temperature=TEMPERATURE,
        ),
    )


def test_tip_as_its_paper_has_it() -> None:
    method = paper("tip", {f"{TERM}.divergence": "reverse_kl", f"{TERM}.entry_clip": None})
    agree(
        method,
        draw(method, seed=3),
        lambda tell, now, begun: tip.tip(tell.rollouts(now, begun), kind="reverse_kl", temperature=TEMPERATURE),
    )


@pytest.mark.parametrize("gap", ["absolute", "target_higher", "student_higher"])
@pytest.mark.parametrize(("share", "top_share"), [(0.1, 0.1), (0.6, 0.5)])
def test_paint_style(gap: str, share: float, top_share: float) -> None:
    changes = {f"{TERM}.mix.gap": gap, f"{TERM}.mix.share": share, f"{TERM}.mix.top_share": top_share}
    method = paper("paint_style", changes)
    agree(
        method,
        draw(method, seed=4),
        lambda tell, now, begun: paint.paint(
            tell.rollouts(now, begun), share=share, top_share=top_share, gap=gap, temperature=TEMPERATURE
        ),
    )


def test_paint_style_everywhere() -> None:
    method = paper("paint_style", {f"{TERM}.mix.positions": "all", f"{TERM}.entry_clip": None})
    agree(
        method,
        draw(method),
        lambda tell, now, begun: paint.paint(
            tell.rollouts(now, begun), positions="all", entry_clip=None, temperature=TEMPERATURE
        ),
    )


# --- USD -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("price", [0.0, 0.4])
@pytest.mark.parametrize("measured", ["raw", "clipped"])
def test_usd(price: float, measured: str) -> None:
    changes = {"controllers.usd.initial_price": price, f"{TERM}.weighting.divergence": measured}
    method = paper("usd", changes)
    agree(
        method,
        draw(method, seed=5),
        lambda tell, now, begun: usd.usd(
            tell.rollouts(now, begun), price=price, weight_divergence=measured, temperature=TEMPERATURE
        ),
    )


def test_usd_with_hard_weights() -> None:
    changes = {
        f"{TERM}.weighting": {"kind": "usd_hard", "price": 0.5},
        f"{TERM}.entry_clip": None,
    }
    method = paper("usd", changes)
    agree(
        method,
        draw(method, seed=6),
        lambda tell, now, begun: usd.usd(
            tell.rollouts(now, begun), price=0.5, selection="hard", entry_clip=None, temperature=TEMPERATURE
        ),
    )


# --- SDS -----------------------------------------------------------------------------------------------------------


def _anchored(tell: Teller, now: Weights, begun: Weights, similarity: str, granularity: str) -> torch.Tensor:
    rollouts, references = tell.rollouts(now, begun), tell.references(now, begun)
    weights = sds.anchor_weights(
        [(row.ids, row.reference) for row in rollouts],
        similarity=similarity,
        granularity=granularity,
        end=VOCABULARY[END],
    )
    return sds.sds(rollouts, references, weights, alpha=0.2, temperature=TEMPERATURE)


@pytest.mark.parametrize("similarity", ["token_f1", "rouge_l", "edit_distance", "exact_match"])
@pytest.mark.parametrize("granularity", ["sample", "batch"])
def test_sds(similarity: str, granularity: str) -> None:
    anchor = f"{TERMS}.anchor.alignment"
    method = paper("sds", {f"{anchor}.similarity": similarity, f"{anchor}.granularity": granularity})
    agree(
        method,
        draw(method, seed=7),
        lambda tell, now, begun: _anchored(tell, now, begun, similarity, granularity),
    )


def test_sds_with_mixed_contexts() -> None:

    method = paper("sds", {f"{TERMS}.anchor": MIXED})

    def loss(tell: Teller, now: Weights, begun: Weights) -> torch.Tensor:
        rows = tell.rollouts(now, begun)
        distilled = imitation.soft_distillation(rows, kind="jsd", temperature=TEMPERATURE, reduction="sequence_mean")
        return distilled + 0.2 * sds.mixed_context_anchor(rows)

    agree(method, draw(method, seed=8), loss)


def test_load_is_measured_with_the_weights_of_the_step() -> None:
    method = paper("usd", {"controllers.usd.initial_price": 0.2})
    finished, state = prepare(method, draw(method, seed=5)), TrainingState.initial(method)
    result = run_update(finished.trainer, 1, finished.batch.problems, state)
    rows: list[Row] = rows_at_start(finished)
    tokens = usd.usd_tokens(rows, price=0.2, temperature=TEMPERATURE)
    assert result.metrics["load/distill"] == pytest.approx(tokens.load(), rel=1e-9)
    price, share = usd.duals(0.2, 0.8, tokens.load())
    assert result.metrics["controller/usd/price"] == 0.2
    assert state.controllers.outputs() == {"usd": pytest.approx({"price": price, "share": share}, rel=1e-9)}


def test_reference_row_means_are_not_token_means() -> None:
    """Guards the ragged batches of this file: the two reductions differ on them."""
    method = paper("opsd")
    finished = run(method, draw(method))
    rows = rows_at_start(finished)
    values = [-row.log_prob("student").detach() for row in rows]
    assert float(sequence_mean(rows, values)) != pytest.approx(float(torch.cat(values).mean()), rel=1e-3)
