"""The references against constants worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tests.training.methods.reference import imitation, opsd, paint, sdpg, sds, tip, usd, vpd
from tests.training.methods.reference.divergences import divergence, likeliest, on_support
from tests.training.methods.reference.policy_gradient import (
    dapo,
    dr_grpo,
    group_advantages,
    grpo,
    grsd_advantages,
    overlong_penalty,
    rlsd_advantage,
    surrogate,
)
from tests.training.methods.reference.rows import Row
from tests.training.methods.reference.sdpo import alpha_divergence

P, Q = torch.tensor([[0.8, 0.2]]).double().log(), torch.tensor([[0.5, 0.5]]).double().log()
EQUAL = torch.zeros(1, 2, dtype=torch.float64)


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def row(ids: tuple[int, ...], **views: torch.Tensor | None) -> Row:
    return Row(ids, dict(views))


def test_divergences_of_two_coins() -> None:
    assert float(divergence("forward_kl", P, Q)) == pytest.approx(0.19274, abs=1e-5)
    assert float(divergence("reverse_kl", P, Q)) == pytest.approx(0.22314, abs=1e-5)
    assert float(divergence("jsd", P, Q)) == pytest.approx(0.05067, abs=1e-5)
    # Order ½: −2·log(√.4 + √.1), the same both ways.
    assert float(divergence("renyi", P, Q, parameter=0.5)) == pytest.approx(-2 * math.log(0.4**0.5 + 0.1**0.5))
    # Order 2: log(.64/.5 + .04/.5) = log 1.36; swapped: log(.25/.8 + .25/.2) = log 1.5625.
    assert float(divergence("renyi", P, Q, parameter=2)) == pytest.approx(math.log(1.36))
    assert float(divergence("reverse_renyi", P, Q, parameter=2)) == pytest.approx(math.log(1.5625))


def test_entry_clip_acts_before_the_sum_and_on_the_upper_side() -> None:
    # Summands of KL(p‖q): .8·log 1.6 = .37600 and .2·log .4 = −.18326.
    assert float(divergence("forward_kl", P, Q, entry_clip=0.05)) == pytest.approx(0.05 - 0.18326, abs=1e-5)


def test_tail_bucket_and_renormalisation() -> None:
    p, q = logs(0.5, 0.3, 0.2), logs(0.2, 0.2, 0.6)
    ids = likeliest(q, 1)
    assert ids.tolist() == [[2]]
    # Events {2} and the rest: p (.2, .8), q (.6, .4).
    coarse = divergence("forward_kl", on_support(p, ids, "tail"), on_support(q, ids, "tail"))
    assert float(coarse) == pytest.approx(0.2 * math.log(1 / 3) + 0.8 * math.log(2))
    ids = likeliest(q, 2)
    assert ids.tolist() == [[2, 0]]
    inside = divergence("forward_kl", on_support(p, ids, "renormalise"), on_support(q, ids, "renormalise"))
    assert float(inside) == pytest.approx(2 / 7 * math.log(2 / 7 / 0.75) + 5 / 7 * math.log(5 / 7 / 0.25))
    assert on_support(p, likeliest(q, 3), "tail").shape == (1, 3)


def test_sdpo_family_in_its_own_letters() -> None:
    # p is the student here: a = 0 is KL(teacher‖student).
    assert float(alpha_divergence(Q, P, 0)) == pytest.approx(0.19274, abs=1e-5)
    assert float(alpha_divergence(Q, P, 1)) == pytest.approx(0.22314, abs=1e-5)
    m = (0.7 * 0.5 + 0.3 * 0.8, 0.7 * 0.5 + 0.3 * 0.2)
    student = 0.5 * math.log(0.5 / m[0]) + 0.5 * math.log(0.5 / m[1])
    teacher = 0.8 * math.log(0.8 / m[0]) + 0.2 * math.log(0.2 / m[1])
    assert float(alpha_divergence(Q, P, 0.3)) == pytest.approx(0.7 * student + 0.3 * teacher)


def test_imitation() -> None:
    rows = [row((0,), student=logs(0.25, 0.75)), row((1, 1), student=logs(0.5, 0.5).expand(2, 2))]
    assert float(imitation.sft(rows)) == pytest.approx((2 * math.log(2) + math.log(4)) / 3)
    assert float(imitation.sft(rows, reduction="sequence_mean")) == pytest.approx((math.log(2) + math.log(4)) / 2)
    labelled = [Row((1, 1), {"student": logs(0.25, 0.75).expand(2, 2)}, reference=(0, 1, 1))]
    assert [value.tolist() for value in imitation.shifted_labels(labelled)] == [
        pytest.approx([math.log(4), math.log(4 / 3)])
    ]


def test_opsd() -> None:
    rows = [row((0,), student=Q, teacher=P), row((1,), student=Q, teacher=None)]
    assert float(opsd.opsd_v3(rows, temperature=1.0, entry_clip=None)) == pytest.approx(0.19274, abs=1e-5)
    assert float(opsd.opsd_v1(rows, temperature=1.0)) == pytest.approx(0.05067, abs=1e-5)
    # At temperature ½ the odds of 4 become 16: p = (16/17, 1/17).
    p = 16 / 17
    assert float(opsd.opsd_v3(rows, temperature=0.5, entry_clip=None)) == pytest.approx(
        p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p))
    )
    assert float(opsd.sampled_token(rows[:1], temperature=1.0)) == pytest.approx(math.log(1.6) * math.log(2))
    assert opsd.sampled_advantage(rows[:1], temperature=1.0) == pytest.approx(-math.log(1.6))


def test_similarities() -> None:
    a, b = [1, 1, 2, 3], [1, 2, 2]
    assert sds.token_f1(a, b) == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))
    assert sds.rouge_l(a, b) == pytest.approx(4 / 7)
    assert sds.edit_similarity(a, b) == pytest.approx(1 - 2 / 4)
    assert sds.edit_similarity([1, 2, 3], [2, 3]) == pytest.approx(2 / 3)
    assert sds.exact_match(a, b) == 0 and sds.exact_match(a, list(a)) == 1
    for similarity in sds.SIMILARITIES.values():
        assert similarity(a, a) == 1
        assert similarity(a, [9]) == 0
    assert sds.anchor_weights([([1, 0], [1, 0]), ([2, 0], [1, 0])], end=0) == [0, 1]
    assert sds.anchor_weights([([1, 0], [1, 0]), ([2, 0], [1, 0])], granularity="batch", end=0) == [0.5, 0.5]


def test_sds() -> None:
    rollouts = [row((0,), student=Q, teacher=P), row((0, 1), student=Q.expand(2, 2), teacher=Q.expand(2, 2))]
    references = [row((0,), student=logs(0.25, 0.75)), row((1,), student=logs(0.25, 0.75))]
    expected = 0.05067 / 2 + 0.2 * (0.5 * math.log(4) + 1 * math.log(4 / 3)) / 2
    assert float(sds.sds(rollouts, references, [0.5, 1.0])) == pytest.approx(expected, abs=1e-5)


def test_usd() -> None:
    rows = [row((0,), student=Q, teacher=P), row((0,), student=logs(0.9, 0.1), teacher=P)]
    tokens = usd.usd_tokens(rows, price=0.2, sharpness=0.1, entry_clip=None, temperature=1.0)
    g = [0.8 * math.log(1.6) + 0.2 * math.log(0.4), 0.8 * math.log(8 / 9) + 0.2 * math.log(2)]
    # The second student prefers the teacher's id already.
    d = [math.log(1.6), 0.0]
    w = [1 / (1 + math.exp(-(gt - 0.2 * dt) / 0.1)) for gt, dt in zip(g, d, strict=True)]
    assert torch.cat(tokens.difficulty).tolist() == pytest.approx(d)
    assert torch.cat(tokens.weight).tolist() == pytest.approx(w)
    assert tokens.load() == pytest.approx(w[0] * d[0] / 2)
    assert float(usd.usd(rows, price=0.2, entry_clip=None, temperature=1.0)) == pytest.approx(
        (w[0] * g[0] + w[1] * g[1]) / sum(w)
    )
    hard = usd.usd_tokens(rows, price=0.5, selection="hard", entry_clip=None, temperature=1.0)
    assert torch.cat(hard.weight).tolist() == [0, 1]  # .19274 < .5·.47 and .03 > 0
    clipped = usd.usd_tokens(rows, price=0.0, weight_divergence="clipped", entry_clip=0.05, temperature=1.0)
    assert float(clipped.weight[0]) == pytest.approx(1 / (1 + math.exp(0.13326 / 0.1)), abs=1e-4)


def test_duals_over_several_steps() -> None:
    assert usd.duals(0.0, 0.8, 0.5) == pytest.approx((0.02, 0.794))
    assert usd.duals(0.02, 0.794, 0.0) == pytest.approx((0.0, 0.803))
    assert usd.duals(0.0, 0.999, 0.2)[1] == 1
    assert usd.duals(0.0, 0.101, 9.0) == pytest.approx((0.87, 0.1))


def test_tip() -> None:
    assert tip.percentile(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.5) == 1.5
    assert tip.kept([0.1, 0.9, 0.9, 0.2], 0.5) == [False, True, True, False]
    assert tip.kept([0.5, 0.5, 0.5], 0.1) == [True, False, False]
    assert sum(tip.kept([float(i) for i in range(100)], 0.29)) == 29
    assert tip.min_max(torch.ones(3)).tolist() == [0, 0, 0]
    rows = [row((0, 0), student=torch.cat([Q, logs(0.9, 0.1)]), teacher=torch.cat([Q, logs(0.1, 0.9)]))]
    # Soft-OR is 1 at both (entropy highest at the first, divergence at the second): the earlier one stays.
    assert float(tip.tip(rows, keep=0.5, cut=1.0)) == pytest.approx(0, abs=1e-12)
    overconfident = tip.tip(rows, keep=0.5, score="overconfident", kind="forward_kl", cut=1.0)
    assert float(overconfident) == pytest.approx(0.1 * math.log(1 / 9) + 0.9 * math.log(9))


def test_paint() -> None:
    here = row((0, 0), student=torch.cat([Q, Q]), teacher=torch.cat([P, Q]))
    assert paint.mismatch_positions(here, top_share=0.5, gap="absolute", temperature=1.0) == [True, False]
    assert paint.mismatch_positions(here, top_share=0.5, gap="target_higher", temperature=1.0) == [False, True]
    # Halfway between log-odds log 4 and 0: odds 2, p = (2/3, 1/3).
    value = paint.paint([here], share=0.5, top_share=0.5, entry_clip=None, temperature=1.0)
    assert float(value) == pytest.approx((2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)) / 2)


def test_group_advantages() -> None:
    rows = [Row((0,), {}, group=g, reward=r) for g, r in ((0, 1.0), (0, 0.0), (0, 0.0), (0, None), (1, 1.0), (1, 1.0))]
    plain = group_advantages(rows, divide_by_std=False, epsilon=0)
    assert plain[:3] == pytest.approx([2 / 3, -1 / 3, -1 / 3]) and plain[3:] == [None, 0, 0]
    sample = group_advantages(rows, divide_by_std=True, epsilon=0)
    assert sample[0] == pytest.approx(2 / 3 / math.sqrt(1 / 3))
    population = group_advantages(rows, divide_by_std=True, epsilon=0, population=True)
    assert population[0] == pytest.approx(2 / 3 / math.sqrt(2 / 9))


def test_policy_gradients() -> None:
    rows = [Row((0, 0), {"student": Q.expand(2, 2)}, 0, 1.0), Row((0,), {"student": Q}, 0, 0.0)]
    # A = ±.5/(√½ + ε), ratio 1: −(.7071 − .7071)/2 by rows, −.5·2/3 + .5/3 by tokens without std.
    assert float(grpo(rows, epsilon=0)) == pytest.approx(0, abs=1e-12)
    assert float(dapo(rows)) == pytest.approx(-(0.5**0.5) / 3)
    assert float(dr_grpo(rows, longest=10)) == pytest.approx(-(0.5 * 2 - 0.5) / 20)
    reference = [Row(r.ids, {**r.logits, "reference": logs(0.8, 0.2).expand(len(r.ids), 2)}, 0, r.reward) for r in rows]
    assert float(grpo(reference, epsilon=0, kl=0.1)) == pytest.approx(0.1 * (1.6 - 1 - math.log(1.6)))


def test_clips_of_the_surrogate() -> None:
    ratios = torch.tensor([0.5, 1.5, 0.5, 1.5, 40.0], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
    loss = surrogate(ratios, advantages, low=0.2, high=0.28, dual=3.0)
    assert loss.tolist() == pytest.approx([-0.5, -1.28, 0.8, 1.5, 3.0])


def test_overlong_penalty() -> None:
    lengths = (100, 16384, 18432, 20480, 30000)
    values = [overlong_penalty(n, longest=20480, cache=4096) for n in lengths]
    assert values == [0, 0, -0.5, -1, -1]


def test_modulated_advantages() -> None:
    gap = torch.tensor([math.log(1.1), math.log(3.0), -math.log(2.0)], dtype=torch.float64)
    assert rlsd_advantage(2.0, gap).tolist() == pytest.approx([2 * 1.05, 2 * 1.1, 2 * 0.9])
    assert rlsd_advantage(-2.0, gap).tolist() == pytest.approx([-2 * (0.5 + 0.5 / 1.1), -2 * 0.9, -2 * 1.1])
    rows = [
        Row((0,), {"student": Q, "teacher": P}, 0, 1.0),
        Row((0,), {"student": Q, "teacher": logs(0.4, 0.6)}, 0, 0.0),
    ]
    # u = .6 for the success; the failure has q = −log .8, u = .25; their mean is .425.
    graded = grsd_advantages(rows, [1.0, -1.0], bound=3.0)
    assert [float(a) for a in graded if a is not None] == pytest.approx(
        [1 + 0.5 * 0.6 / 0.425, -(1 + 0.5 * 0.25 / 0.425)], abs=1e-5
    )
    saturated = grsd_advantages(rows, [1.0, -1.0])
    assert [float(a) for a in saturated if a is not None] == pytest.approx([1.1, -1.1])
    assert grsd_advantages([Row(r.ids, r.logits, 0, 1.0) for r in rows], [0.0, 0.0]) == [0, 0]


def test_sdpg() -> None:
    assert [sdpg.schedule(k) for k in (1, 25, 50, 51, 225, 400)] == pytest.approx(
        [2e-5, 5e-4, 1e-3, 1e-3 * 349 / 350, 5e-4, 0]
    )
    views = {"student": Q, "teacher": P, "reference": logs(0.25, 0.75)}
    rows = [Row((0,), {**views}, 0, 1.0), Row((0,), {**views}, 0, 0.0)]
    half = 0.5 * math.log(2) ** 2
    # The outcome terms of the two rows cancel; only the success is distilled.
    assert float(sdpg.sdpg(rows, beta=0.3, alpha=0.1)) == pytest.approx(0.3 * 0.22314 / 2 + 0.1 * half, abs=1e-6)
    assert float(sdpg.sdpg(rows, beta=0, alpha=1.0, surrogate="ufkl")) == pytest.approx(0.5 + math.log(2))
    assert float(sdpg.sdpg(rows, beta=1, alpha=0, gate=False, token_clip=0.1)) == pytest.approx(0.1)


def test_vpd() -> None:
    rows = [
        Row((0, 0), {"student": Q, "teacher": P.expand(2, 2), "prior": Q.expand(2, 2)}, reward=1.0),
        Row((1,), {"student": Q, "teacher": P, "prior": Q}, reward=0.0),
    ]
    r = [0.1 * 2 * math.log(1.6), 0.1 * math.log(0.4)]
    delta = sum(r) / 2
    expected = math.log1p(math.exp(-(r[0] - delta))) + math.log1p(math.exp(r[1] - delta))
    step = vpd.e_step(rows)
    assert step.rewards == pytest.approx(r) and step.shift == pytest.approx(delta)
    assert float(step.loss) == pytest.approx(expected)
    assert vpd.e_step(rows[1:]).shift == pytest.approx(r[1])
    assert vpd.e_step(rows, shift_rate=0.1, shift_before=1.0).shift == pytest.approx(0.9 + 0.1 * delta)
    assert vpd.e_step(rows, length="mean", bound=0.04).rewards == pytest.approx([0.04, -0.04])
