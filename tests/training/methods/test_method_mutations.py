"""Faults planted into the update of a method: the named test of this folder must fail, and passes without them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.training.methods import planted_faults as planted
from tests.training.methods import planted_state_faults as planted_state
from tests.training.methods import test_average_reference as average
from tests.training.methods import test_credit_reference as credit
from tests.training.methods import test_imitation_reference as imitation
from tests.training.methods import test_invariants as invariants
from tests.training.methods import test_opsd_reference as opsd
from tests.training.methods import test_rewards_reference as rewards
from tests.training.methods import test_sdpo_reference as sdpo
from tests.training.methods import test_vpd_reference as vpd
from tests.training.methods.planted_faults import Fault, Patch

Test = Callable[[], object]

CASES: list[tuple[Fault, Test]] = [
    (planted.advantage_with_the_other_sign, lambda: rewards.test_grpo(rewards.SCORES)),
    (planted.distance_with_the_other_sign, lambda: opsd.test_sds("token_f1", "sample")),
    (planted.labels_shifted_by_one, lambda: imitation.test_sft("token_mean")),
    (planted.reference_labels_shifted_by_one, opsd.test_sds_with_mixed_contexts),
    (planted.all_tokens_in_usds_denominator, lambda: opsd.test_usd(0.4, "raw")),
    (planted.denominators_of_weights_become_tokens, lambda: opsd.test_tip("soft_or", 0.5)),
    (planted.gated_rows_leave_the_denominator, lambda: rewards.test_sdpg_with_terms_of_one_size("urkl", True)),
    (planted.every_row_counts_where_none_has_a_context, lambda: sdpo.test_sdpo("sdpo_science", 0.5, 5, "tail")),
    (planted.support_of_the_other_side, lambda: sdpo.test_sdpo("sdpo_code", 1, 4, "tail")),
    (planted.direction_swapped, lambda: rewards.test_sdpg("sdpg_urkl", 25)),
    (planted.mixture_weights_swapped, lambda: sdpo.test_sr_opsd_science("support_first", 6)),
    (planted.mixture_weights_swapped, sdpo.test_sdpo_against_the_trust_region_teacher),
    (planted.order_of_mixing_ignored, lambda: sdpo.test_sr_opsd_science("support_first", 6)),
    (planted.gradient_through_the_importance_ratio, sdpo.test_sdpo_in_several_steps_weighs_by_the_ratio),
    (planted.gradient_into_the_live_teacher, lambda: rewards.test_sdpg_with_terms_of_one_size("urkl", True)),
    (planted.gradient_into_the_live_teacher, lambda: vpd.test_m_step_alone(5)),
    (planted.gate_open_at_the_mean, lambda: invariants.test_equal_rewards_close_the_gate_of_sdpg("sdpg_urkl", 0.0)),
    (planted.gate_turned_round, lambda: rewards.test_sdpg_with_terms_of_one_size("urkl", True)),
    (planted.one_mean_for_all_groups, lambda: rewards.test_dr_grpo()),
    (planted.deviation_of_the_population, lambda: rewards.test_grpo(rewards.SCORES)),
    (planted.old_policy_of_every_step, rewards.test_grpo_in_several_steps),
    (planted.credit_measured_anew_at_every_step, lambda: rewards.test_rlsd(1.0, 0.9, True)),
    (planted.penalty_for_short_responses, lambda: rewards.test_dapo(False, False)),
    (planted.truncated_rollouts_kept, lambda: rewards.test_dapo(True, False)),
    (planted.sign_of_the_advantage_ignored_by_rlsd, lambda: rewards.test_rlsd(1.0, 0.9, False)),
    (planted.grsd_over_the_whole_batch, lambda: rewards.test_grsd_credit("turn", "group", 3.0)),
    (planted.grsd_by_tokens_where_turns_are_asked, lambda: rewards.test_grsd_credit("turn", "group", 3.0)),
    (planted.scores_scaled_in_each_rollout, lambda: opsd.test_tip("soft_or", 0.5)),
    (planted.lowest_scores_kept, lambda: opsd.test_tip("soft_or", 0.2)),
    (planted.smallest_gaps_picked, lambda: opsd.test_paint_style("absolute", 0.6, 0.5)),
    (planted_state.price_falls_under_load, opsd.test_load_is_measured_with_the_weights_of_the_step),
    (planted_state.share_grows_under_load, credit.test_usd_controller_over_many_updates),
    (planted_state.load_without_its_weights, opsd.test_load_is_measured_with_the_weights_of_the_step),
    (planted_state.classes_swapped, vpd.test_both_steps_of_a_fifth_update),
    (planted_state.shift_is_the_mean_of_the_rows, vpd.test_both_steps_of_a_fifth_update),
    (planted_state.slopes_turned_round, vpd.test_both_steps_of_a_fifth_update),
    (planted_state.prior_never_taken, vpd.test_both_steps_of_a_fifth_update),
    (planted_state.rate_read_as_decay, lambda: average.test_average_follows_its_rate(0.05)),
    (planted_state.similarity_with_the_end_token, lambda: opsd.test_sds("token_f1", "sample")),
    (planted_state.unscored_rollouts_fail, lambda: rewards.test_grpo(rewards.GRADED)),
    (planted_state.sampler_weights_dropped, lambda: sdpo.test_sdpo("sdpo_science", 0.5, 5, "tail")),
    (planted_state.sampler_weights_dropped, rewards.test_improved_grpo),
    (planted_state.first_tokens_not_skipped, opsd.test_sdft_skips_first_tokens_and_renormalises_the_teachers_top),
    (planted_state.rollouts_always_from_the_student, imitation.test_sequence_distillation_draws_from_the_teacher),
]


@pytest.mark.parametrize(
    ("fault", "test"), CASES, ids=[f"{place}-{fault.__name__}" for place, (fault, _) in enumerate(CASES)]
)
def test_the_named_test_finds_the_fault(fault: Fault, test: Test, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        test()


def test_a_dual_clip_that_is_dropped_is_found(monkeypatch: Patch) -> None:
    planted.dual_clip_dropped(monkeypatch)
    with pytest.raises(AssertionError):
        rewards.test_dapo_with_a_dual_clip_far_off_policy(monkeypatch)


def test_there_are_many_faults() -> None:
    faults = {fault for fault, _ in CASES}
    assert len(faults) > 30 and all(inspect.getmodule(fault) in (planted, planted_state) for fault in faults)
