from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from training.method import (
    JSD,
    Distill,
    EmaWeights,
    Method,
    Optimiser,
    OverrideError,
    PolicyGradient,
    ReverseKL,
    override,
    override_all,
)
from training.methods import METHODS

OPSD, GRPO = METHODS["opsd"], METHODS["grpo"]
DISTILL = "phases.student.terms.distill"


def _distill(method: Method) -> Distill:
    term = method.phases["student"].terms["distill"]
    assert isinstance(term, Distill)
    return term


def test_one_value_is_one_override_and_the_original_stays() -> None:
    changed = override(OPSD, "views.teacher.weights", "ema")

    assert changed.views["teacher"].weights == EmaWeights(teacher_update_rate=0.05)
    assert OPSD.views["teacher"].weights.kind == "frozen"
    assert changed.model_dump(exclude={"views"}) == OPSD.model_dump(exclude={"views"})


def test_overrides_reach_fields_inside_chosen_variants() -> None:
    jsd = override(OPSD, f"{DISTILL}.divergence", {"kind": "jsd", "beta": 0.3})
    slower = override(override(OPSD, "views.teacher.weights", "ema"), "views.teacher.weights.teacher_update_rate", 0.01)

    assert _distill(jsd).divergence == JSD(beta=0.3)
    assert _distill(override(jsd, f"{DISTILL}.divergence.beta", 0.7)).divergence == JSD(beta=0.7)
    assert _distill(override(OPSD, f"{DISTILL}.divergence", "reverse_kl")).divergence == ReverseKL()
    assert _distill(override(OPSD, f"{DISTILL}.entry_clip", None)).entry_clip is None
    assert slower.views["teacher"].weights == EmaWeights(teacher_update_rate=0.01)


def test_several_values_are_checked_together() -> None:
    grouped = override_all(GRPO, {"batch.group_size": 16, "batch.prompts": 2})

    assert (grouped.batch.group_size, grouped.batch.prompts) == (16, 2)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("views.teachr.weights", "ema", r"no field 'teachr' in views .*did you mean 'teacher'"),
        ("view.teacher.weights", "ema", r"no field 'view' in the method .*did you mean 'views'"),
        ("views.teacher.weights", "emma", r"views\.teacher\.weights: 'emma' is not valid here; did you mean 'ema'"),
        (f"{DISTILL}.divergence", "revers_kl", r"did you mean 'reverse_kl'"),
        (f"{DISTILL}.reduction", "token_men", r"did you mean 'token_mean'"),
        (f"{DISTILL}.temperature", "samplin", r"did you mean 'sampling'"),
        (f"{DISTILL}.divergence.beta", 0.3, r"no field 'beta' in .*divergence"),
        (f"{DISTILL}.divergence", {"kind": "jsd", "beta": 1}, r"divergence: .*less than 1"),
        (f"{DISTILL}.divergence", {"kind": "jsd", "beta": 0}, r"divergence: .*greater than 0"),
        (f"{DISTILL}.entry_clip", -1, r"entry_clip: .*greater than 0"),
        (f"{DISTILL}.coefficient", float("nan"), r"coefficient: .*finite"),
        (f"{DISTILL}.against", "techer", r"names view 'techer'"),
        (f"{DISTILL}.of", "teacher", r"only student weights learn"),
        ("sampling.temperature", "hot", r"sampling\.temperature: .*valid number"),
        ("sampling.temperature", 0, r"temperature follows sampling\.temperature, which is 0"),
        ("batch.prompts", 0, r"batch\.prompts: .*greater than 0"),
        (f"{DISTILL}.coefficient", -1.0, r"coefficient: .*-1 is outside 0 to inf"),
    ],
)
def test_wrong_paths_and_values_are_refused_with_the_place_and_the_nearest_name(
    path: str, value: Any, said: str
) -> None:
    with pytest.raises(OverrideError, match=said):
        override(OPSD, path, value)


def test_group_relative_advantages_need_groups() -> None:
    with pytest.raises(OverrideError, match="group_size of 2 or more"):
        override(GRPO, "batch.group_size", 1)


def test_entry_clip_is_refused_where_there_are_no_summands() -> None:
    with pytest.raises(OverrideError, match="Rényi"):
        override(OPSD, f"{DISTILL}.divergence", {"kind": "renyi", "order": 2.0})


def test_the_terms_temperature_follows_sampling_unless_it_is_a_number() -> None:
    cooler = override(GRPO, "sampling.temperature", 0.7)
    fixed = override(OPSD, f"{DISTILL}.temperature", 2.0)

    reward = cooler.terms_of("student")["reward"]
    distill = fixed.terms_of("student")["distill"]
    assert isinstance(reward, PolicyGradient) and reward.temperature == 0.7
    assert isinstance(distill, Distill) and distill.temperature == 2.0


def test_methods_are_frozen_and_survive_json() -> None:
    for method in METHODS.values():
        assert Method.model_validate_json(method.model_dump_json()) == method
    with pytest.raises(ValidationError):
        OPSD.phases["student"].optimiser.learning_rate = 1.0  # type: ignore[misc]


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError):
        Optimiser(learning_rate=1e-3, momentum=0.9)  # type: ignore[call-arg]


def test_a_terms_name_belongs_to_one_phase() -> None:
    vpd = METHODS["vpd"]
    clash = {"distill": vpd.phases["teacher"].terms["preference"].model_dump()}

    with pytest.raises(OverrideError, match="phase 'student' has this term"):
        override(vpd, "phases.teacher.terms", clash)


def test_an_error_of_the_whole_method_names_its_place_and_not_every_change() -> None:
    changes = {"batch.prompts": 4, "batch.step_prompts": 1, "sampling.max_new_tokens": 9}

    with pytest.raises(OverrideError, match=r"^method 'vpd': phases\.teacher: preference needs whole batches"):
        override_all(METHODS["vpd"], changes)


@pytest.mark.parametrize(
    ("key", "term"), [("sdpo_science", "distill"), ("grpo_improved", "reward"), ("sr_opsd_math", "distill")]
)
def test_the_samplers_probabilities_are_compared_at_its_own_temperature(key: str, term: str) -> None:
    """A ratio of two temperatures is not 1 on equal weights."""
    place = f"phases.student.terms.{term}"
    same = {"sampling.temperature": 0.6, f"{place}.temperature": 0.6}

    with pytest.raises(OverrideError, match=rf"{term}\.sampler_importance_clip .* at temperature 1 .* at 0\.6"):
        override_all(METHODS[key], {"sampling.temperature": 0.6, f"{place}.temperature": 1.0})
    assert override_all(METHODS[key], same).sampling.temperature == 0.6
    freed = {"sampling.temperature": 0.6, f"{place}.temperature": 1.0, f"{place}.sampler_importance_clip": None}
    assert override_all(METHODS[key], freed).sampling.temperature == 0.6


def test_a_policy_gradient_on_what_another_view_drew_needs_the_samplers_ratio() -> None:
    reward = "phases.student.terms.reward"

    with pytest.raises(OverrideError, match=r"view 'student' drew, and rollout_view is 'reference': .*sampler_import"):
        override(GRPO, "rollout_view", "reference")
    weighted = override_all(GRPO, {"rollout_view": "reference", f"{reward}.sampler_importance_clip": 2.0})
    assert weighted.rollout_view == "reference"
    with pytest.raises(OverrideError, match=r"reference_kl estimates .* set rollout_view to 'student'$"):
        override_all(METHODS["sdpg_urkl"], {"rollout_view": "teacher", f"{reward}.sampler_importance_clip": 2.0})


@pytest.mark.parametrize(
    ("key", "changes", "place"),
    [
        ("opsd", {f"{DISTILL}.gate": "passed", "reward.on_pass": 0.2}, rf"{DISTILL}\.gate"),
        ("sdpo_science", {"reward.on_pass": 0.2}, r"views\.teacher\.context\.threshold"),
        ("sdpo_science", {"reward.on_fail": 0.5}, r"views\.teacher\.context\.threshold"),
        ("vpd", {"phases.teacher.terms.preference.success_threshold": 1.5}, r"preference\.success_threshold"),
        ("rlsd", {"phases.student.terms.reward.modulation": "grsd", "reward.on_pass": 0.4}, r"reward\.modulation"),
    ],
)
def test_rewards_that_make_no_success_or_no_failure_are_refused(key: str, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(OverrideError, match=place + ".*reward.on_pass"):
        override_all(METHODS[key], changes)


def test_rewards_of_minus_and_plus_one_are_welcome() -> None:
    assert override(METHODS["sdpo_science"], "reward.on_fail", -1.0).reward.on_fail == -1.0


def test_a_length_penalty_on_every_response_is_refused() -> None:
    with pytest.raises(OverrideError, match=r"reward\.overlong\.cache_tokens 30 is longer .*max_new_tokens 20"):
        override_all(METHODS["dapo"], {"sampling.max_new_tokens": 20, "reward.overlong.cache_tokens": 30})
