"""What holds for methods whatever the numbers: equal methods, equal batches, nothing from nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.methods.runs import Batch, Run, draw, paper, prepare, run
from tests.training.small import ragged_problems, small_renderer
from training.base_models.tokenizer import VOCABULARY
from training.method import Distill, Method, Renyi, override_all
from training.methods import METHODS
from training.methods.sdpo import SDPO_CODE, trust_region
from training.update import run_update

TERM = "phases.student.terms.distill"
REWARD = "phases.student.terms.reward"
TERMS = "phases.student.terms"

KEYS = [*METHODS]
SCORES = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
Gradients = list[dict[str, Tensor]]


def grouped(key: str, changes: Mapping[str, Any] | None = None) -> Method:
    """Two problems of three rollouts; top-k supports of five, so that there is a tail."""
    small = {path: 5 for path in (f"{TERM}.support.k",) if "distill" in METHODS[key].phases["student"].terms}
    try:
        method = paper(key, small, prompts=2, group_size=3)
    except ValueError:
        method = paper(key, None, prompts=2, group_size=3)
    return override_all(method, dict(changes or {}))


def due(method: Method) -> int:
    """An update at which every phase runs."""
    return max(phase.every for phase in method.phases.values())


def gradients(finished: Run) -> Gradients:
    return [gradient for _, gradient in finished.learner.steps]


def same(first: Gradients, second: Gradients, *, scale: float = 1.0, tolerance: float = 1e-10) -> None:
    assert len(first) == len(second)
    for ours, theirs in zip(first, second, strict=True):
        for name, gradient in theirs.items():
            apart = float((ours[name] - scale * gradient).abs().max())
            assert apart <= tolerance * max(float(gradient.abs().max()), 1e-3), f"{name} differs by {apart:.3g}"


def size(found: Gradients) -> float:
    return max(float(part.abs().max()) for gradient in found for part in gradient.values())


# --- methods that are one another --------------------------------------------------------------------------------


def test_usd_without_a_price_at_full_share_is_opsd() -> None:
    changes = {
        "controllers.usd.price_rate": 0.0,
        "controllers.usd.initial_share": 1.0,
        f"{TERM}.weighting.sharpness": 1e12,
    }
    batch = draw(grouped("opsd"))
    same(gradients(run(grouped("usd", changes), batch)), gradients(run(grouped("opsd"), batch)))


def test_usd_below_full_share_is_not() -> None:
    changes = {"controllers.usd.price_rate": 0.0, "controllers.usd.initial_share": 0.5}
    batch = draw(grouped("opsd"))
    with pytest.raises(AssertionError):
        same(gradients(run(grouped("usd", changes), batch)), gradients(run(grouped("opsd"), batch)))


def test_tip_that_keeps_all_tokens_is_opsd() -> None:
    batch = draw(grouped("opsd"))
    whole = run(grouped("tip", {f"{TERM}.weighting.keep": 1.0}), batch)
    same(gradients(whole), gradients(run(grouped("opsd"), batch)))


def test_paint_style_without_pull_and_mask_is_opsd() -> None:
    batch = draw(grouped("opsd"))
    plain = run(grouped("paint_style", {f"{TERM}.mix.share": 0.0, "views.teacher.context": "solution"}), batch)
    same(gradients(plain), gradients(run(grouped("opsd"), batch)))


def _drawn_like_the_references(method: Method) -> Batch:
    renderer, problems = small_renderer(), ragged_problems(method.batch.prompts)
    batch = draw(method)
    batch.responses = [renderer.reference_ids(problem.solution or "") for problem in problems]
    batch.logprobs = [(-1.0,) * len(ids) for ids in batch.responses]
    return batch


def test_sds_without_distance_is_distillation_alone() -> None:
    """ŷ = y* makes every w 0."""
    method = paper("sds", prompts=3)
    alone = paper("sds", {f"{TERMS}.anchor.coefficient": 0.0}, prompts=3)
    batch = _drawn_like_the_references(method)
    same(gradients(run(method, batch)), gradients(run(alone, copy.deepcopy(batch))))
    with pytest.raises(AssertionError):
        same(gradients(run(method, draw(method))), gradients(run(alone, draw(method))))


def test_the_anchor_of_sds_alone_is_sft() -> None:
    changes = {
        f"{TERMS}.anchor.alignment": None,
        f"{TERMS}.anchor.coefficient": 1.0,
        f"{TERMS}.distill.coefficient": 0.0,
    }
    anchor = paper("sds", changes, prompts=3)
    sft = paper("sft", {f"{TERMS}.imitate.reduction": "sequence_mean"}, prompts=3)
    same(gradients(run(anchor, draw(anchor))), gradients(run(sft, draw(sft))))


def test_sdpg_without_its_two_terms_is_the_policy_gradient() -> None:
    off = {f"{TERMS}.distill.coefficient": 0.0, f"{TERMS}.reference_kl.coefficient": 0.0}
    plain = {f"{REWARD}.reduction": "token_mean", f"{REWARD}.advantage.epsilon": 1e-6}
    batch = draw(grouped("grpo"), SCORES)
    sdpg = run(grouped("sdpg_urkl", off), batch)
    same(gradients(sdpg), gradients(run(grouped("grpo", plain), batch)))


def test_dapo_without_its_changes_is_grpo_by_tokens() -> None:
    changes = {"reward.overlong": None, "reward.truncated": "keep", f"{REWARD}.clip_high": 0.2}
    plain = {f"{REWARD}.reduction": "token_mean", f"{REWARD}.advantage.epsilon": 1e-6}
    batch = draw(grouped("grpo"), SCORES)
    same(gradients(run(grouped("dapo", changes), batch)), gradients(run(grouped("grpo", plain), batch)))


def test_grsd_by_tokens_without_normalisation_is_rlsd() -> None:
    token = {"kind": "grsd", "level": "token", "normalise": "none", "bound": 0.2, "share": 0.5}
    batch = draw(grouped("rlsd"), SCORES)
    same(
        gradients(run(grouped("rlsd", {f"{REWARD}.modulation": token}), batch)), gradients(run(grouped("rlsd"), batch))
    )


@pytest.mark.parametrize("modulation", ["rlsd", {"kind": "grsd"}, {"kind": "grsd", "level": "token"}])
def test_a_teacher_that_sees_nothing_more_changes_no_credit(modulation: Any) -> None:
    batch = draw(grouped("rlsd"), SCORES)
    blind = grouped("rlsd", {"views.teacher.context": "none", f"{REWARD}.modulation": modulation})
    same(gradients(run(blind, batch)), gradients(run(grouped("rlsd", {f"{REWARD}.modulation": None}), batch)))


def test_sr_opsd_with_all_of_the_teacher_is_unmixed() -> None:
    batch = draw(grouped("sr_opsd_science"), SCORES)
    whole = run(grouped("sr_opsd_science", {f"{TERM}.mix.share": 1.0}), batch)
    same(gradients(whole), gradients(run(grouped("sr_opsd_science", {f"{TERM}.mix": None}), batch)))


def test_sr_opsd_without_the_teacher_does_not_depend_on_it() -> None:
    batch = draw(grouped("sr_opsd_science"), SCORES)
    none = {f"{TERM}.mix.share": 0.0}
    first = run(grouped("sr_opsd_science", none), batch)
    second = prepare(grouped("sr_opsd_science", none), batch)
    for kind, model in second.learner.models.items():
        if kind.kind == "ema":
            with torch.no_grad():
                model.embedding.mul_(2)
    run_update(second.trainer, 1, batch.problems)
    same(gradients(first), gradients(second))


def test_renyi_near_order_one_is_forward_kl() -> None:
    batch = draw(grouped("sr_opsd_science"), SCORES)
    near = run(grouped("sr_opsd_science", {f"{TERM}.divergence.order": 1 - 1e-7}), batch)
    forward = run(grouped("sr_opsd_science", {f"{TERM}.divergence": "forward_kl"}), batch)
    same(gradients(near), gradients(forward), tolerance=1e-5)


def test_orders_of_mixing_agree_on_the_full_support() -> None:
    batch = draw(grouped("sr_opsd_science"), SCORES)
    first, second = (
        run(grouped("sr_opsd_science", {f"{TERM}.support": "full", f"{TERM}.mix.order": order}), batch)
        for order in ("support_first", "mix_first")
    )
    same(gradients(first), gradients(second))


@pytest.mark.parametrize("key", ["sdpo_science", "sdpo_code", "sr_opsd_science", "vpd"])
def test_a_tail_of_one_id_is_the_full_vocabulary(key: str) -> None:

    batch = draw(grouped(key), SCORES)
    nearly = run(grouped(key, {f"{TERM}.support.k": len(VOCABULARY) - 1}), batch)
    same(gradients(nearly), gradients(run(grouped(key, {f"{TERM}.support": "full"}), batch)), tolerance=1e-6)


def test_a_trust_region_that_is_all_live_is_the_live_teacher() -> None:

    term = SDPO_CODE.phases["student"].terms["distill"]
    assert isinstance(term, Distill)
    mixed = trust_region(term)
    mixed["mix"]["share"] = 1.0
    batch = draw(grouped("sdpo_code"), SCORES)
    live = {TERM: {**mixed, "mix": None}}
    same(gradients(run(grouped("sdpo_code", {TERM: mixed}), batch)), gradients(run(grouped("sdpo_code", live), batch)))


# --- nothing comes from nothing ----------------------------------------------------------------------------------


def _distills(key: str) -> bool:
    return any(isinstance(term, Distill) for term in METHODS[key].terms())


@pytest.mark.parametrize("key", [key for key in KEYS if _distills(key)])
def test_teacher_that_is_the_student_teaches_nothing(key: str) -> None:
    method = grouped(key)
    views = {f"views.{name}.context": "none" for name in method.views}
    others = {
        f"phases.{phase}.terms.{name}.coefficient": 0.0
        for phase, content in method.phases.items()
        for name, term in content.terms.items()
        if not isinstance(term, Distill)
    }
    finished = run(override_all(method, {**views, **others}), draw(method, SCORES), same_weights=True)
    for phase in method.phases.values():
        for name, term in phase.terms.items():
            if isinstance(term, Distill):
                values = [v for n, v in finished.metrics.items() if n.startswith(f"divergence/{name}/")]
                # A mixture is normalised anew, which rounds.
                bound = 5e-5 if isinstance(term.divergence, Renyi) else 0.0 if term.mix is None else 1e-15
                assert values and all(value is not None and abs(value) <= bound for value in values)
    assert size(gradients(finished)) < 1e-14


REWARDED = ["grpo", "dr_grpo", "dapo", "grpo_improved", "rlsd"]


@pytest.mark.parametrize("key", REWARDED)
@pytest.mark.parametrize("score", [1.0, 0.0, None])
def test_equal_rewards_teach_nothing(key: str, score: float | None) -> None:
    method = grouped(key, {"reward.overlong": None} if METHODS[key].reward.overlong else {})
    finished = run(method, draw(method, [score] * 6))
    assert size(gradients(finished)) == 0
    assert (finished.metrics["loss"] or 0.0) == 0


@pytest.mark.parametrize("key", ["sdpg_urkl", "sdpg_ufkl"])
@pytest.mark.parametrize("score", [1.0, 0.0, None])
def test_equal_rewards_close_the_gate_of_sdpg(key: str, score: float | None) -> None:
    method = grouped(key, {f"{TERMS}.reference_kl.coefficient": 0.0, f"{TERMS}.distill.coefficient": 1.0})
    finished = run(method, draw(method, [score] * 6))
    assert size(gradients(finished)) == 0
    assert (finished.metrics["loss"] or 0.0) == 0


@pytest.mark.parametrize("key", [key for key in KEYS if key.startswith(("sdpo", "sr_opsd", "vpd"))])
@pytest.mark.parametrize("score", [0.0, None])
def test_rows_without_a_context_teach_nothing(key: str, score: float | None) -> None:
    method = grouped(key)
    if "entropy" in method.phases["student"].terms:
        method = override_all(method, {f"{TERMS}.entropy.coefficient": 0.0})
    finished = run(method, draw(method, [score] * 6), due(method))
    assert all(float(part.abs().max()) == 0 for gradient in gradients(finished) for part in gradient.values())
    assert (finished.metrics["loss"] or 0.0) == 0


@pytest.mark.parametrize("key", [key for key in KEYS if key.startswith(("sdpo", "sr_opsd", "vpd"))])
def test_a_group_without_a_success_changes_nothing_for_the_others(key: str) -> None:
    """Three failures beside a mixed group give the gradient of the mixed group alone."""
    method = grouped(key)
    if "entropy" in method.phases["student"].terms:
        method = override_all(method, {f"{TERMS}.entropy.coefficient": 0.0})
    both = draw(method, (1.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    alone = override_all(method, {"batch.prompts": 1})
    first = Batch(both.problems[:1], both.responses[:3], both.logprobs[:3], both.scores[:3])
    same(gradients(run(method, both, due(method))), gradients(run(alone, first, due(method))))
