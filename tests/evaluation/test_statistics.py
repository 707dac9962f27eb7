"""Estimators against brute force, closed forms and scipy."""

from __future__ import annotations

import itertools
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluation import statistics as s
from evaluation.statistics import resampling


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (2, 0, 5, None),
        (4, 1, 2, 0.5),
        (0, 0, 1, None),
        (1, 1, 10, None),
        (4, 4, 4, 1.0),
        (4, 0, 4, 0.0),
        (5, 2, 1, 0.4),
    ],
)
def test_pass_at_k_known_values(n: int, c: int, k: int, expected: float | None) -> None:
    assert s.pass_at_k(n, c, k) == expected


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 0), (4, -1, 1), (-1, 0, 1)])
@pytest.mark.parametrize("function", [s.pass_at_k, s.pass_hat_k])
def test_impossible_counts_are_refused(function, n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"cannot be|at least 1"):
        function(n, c, k)


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_and_pass_hat_k_equal_the_enumeration_of_all_draws(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert s.pass_at_k(n, c, k) == pytest.approx(np.mean([any(draw) for draw in draws]), abs=1e-12)
    assert s.pass_hat_k(n, c, k) == pytest.approx(np.mean([all(draw) for draw in draws]), abs=1e-12)


def test_pass_at_k_grows_with_k_and_one_sample_a_problem_gives_none() -> None:
    values = [s.pass_at_k(16, 3, k) or 0.0 for k in range(1, 17)]
    assert values == sorted(values) and values[-1] == 1.0
    assert s.pass_at_k(1, 1, 10) is None


def test_standard_error_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).random(50)
    assert s.standard_error(values) == pytest.approx(stats.sem(values))
    assert s.standard_error([*values, np.nan]) == pytest.approx(stats.sem(values))
    assert s.standard_error([0.3]) is None
    assert s.standard_error(values, list(range(50))) == pytest.approx(stats.sem(values))


def test_clustered_standard_error_against_its_double_sum() -> None:
    rng = np.random.default_rng(1)
    clusters = rng.integers(0, 7, 40)
    values = rng.random(40) + 0.3 * clusters
    deviations = values - values.mean()
    same = clusters[:, None] == clusters[None, :]
    double_sum = (same * np.outer(deviations, deviations)).sum()
    groups = len(set(clusters))
    expected = sqrt(double_sum * groups / (groups - 1)) / 40
    assert s.standard_error(values, list(clusters)) == pytest.approx(expected)
    assert expected > 1.5 * stats.sem(values)  # problems of a cluster are alike here, so the naive error is too small


@pytest.mark.parametrize(("passed", "total"), [(0, 10), (3, 10), (10, 10), (27, 30), (500, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_interval_against_scipy(passed: int, total: int, confidence: float) -> None:
    expected = stats.binomtest(passed, total).proportion_ci(confidence, method="wilson")
    interval = s.wilson_interval(passed, total, confidence)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert s.wilson_interval(0, 0) is None


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 29, 100])
@pytest.mark.parametrize("probability", [0.5, 0.75, 0.95, 0.975, 0.995])
def test_t_quantile_against_scipy(degrees: int, probability: float) -> None:
    assert s.t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), abs=1e-9)


def test_t_interval_needs_three_seeds() -> None:
    assert s.t_interval([0.1, 0.9]) is None
    seeds = [0.41, 0.45, 0.43, 0.52]
    expected = stats.t.interval(0.95, 3, np.mean(seeds), stats.sem(seeds))
    interval = s.t_interval(seeds)
    assert interval is not None and (interval.low, interval.high) == pytest.approx(expected)


def test_mean_over_seeds_gives_every_seed_the_same_weight() -> None:
    assert s.mean_over_seeds([[1, 1, np.nan], [0, 0, 0]]) == 0.5
    assert s.mean_over_seeds([[np.nan, np.nan], [1, 1]]) is None


def test_bootstrap_over_two_problems_matches_the_four_possible_draws() -> None:
    means = s.bootstrap_means([[0.0, 1.0]], resample_seeds=False)
    values, counts = np.unique(means, return_counts=True)
    assert list(values) == [0.0, 0.5, 1.0]
    # Drawn: 00, 01, 10, 11. Four standard errors of a share of 10,000.
    assert counts / 10_000 == pytest.approx([0.25, 0.5, 0.25], abs=4 * sqrt(0.25 / 10_000))


def test_bootstrap_variance_has_the_closed_form_of_crossed_resampling() -> None:
    """Var* = Va + Vb + Vab for row means a, column means b, residuals e, with population variances over S and P."""
    rng = np.random.default_rng(2)
    table = rng.random((4, 30)) + rng.random((4, 1)) + rng.random((1, 30))
    rows, columns, mean = table.mean(1, keepdims=True), table.mean(0, keepdims=True), table.mean()
    residual = table - rows - columns + mean
    expected = rows.var() / 4 + columns.var() / 30 + residual.var() / (4 * 30)
    means = s.bootstrap_means(table, resample_seeds=True, resamples=40_000)
    assert means.mean() == pytest.approx(mean, abs=4 * sqrt(expected / 40_000))
    assert means.var() == pytest.approx(expected, rel=0.04)


def test_problems_are_drawn_for_all_seeds_together() -> None:
    """Three seeds with the same answers tell as much about other problems as one, not three times as much."""
    one = np.random.default_rng(3).random((1, 60))
    spread = s.bootstrap_means(np.repeat(one, 3, 0), resample_seeds=True).std()
    assert spread == pytest.approx(one.std() / sqrt(60), rel=0.05)


def test_clusters_are_drawn_whole() -> None:
    values = np.repeat(np.random.default_rng(4).random(10), 5)
    clusters = np.repeat(np.arange(10), 5).tolist()
    clustered = s.bootstrap_means([values], clusters, resample_seeds=False).std()
    error = s.standard_error(values, clusters)
    assert error is not None and clustered == pytest.approx(error * sqrt(9 / 10), rel=0.05)
    assert clustered > 1.8 * s.bootstrap_means([values], resample_seeds=False).std()
    with pytest.raises(ValueError, match="3 clusters for 50 problems"):
        s.bootstrap_means([values], [1, 2, 3], resample_seeds=False)


def test_bootstrap_is_deterministic_and_refuses_an_empty_table() -> None:
    table = np.random.default_rng(5).random((3, 25))
    assert s.seed_interval(table) == s.seed_interval(table.copy())
    with pytest.raises(ValueError, match="no problem has a score"):
        s.bootstrap_means([[np.nan]], resample_seeds=False)


@pytest.mark.parametrize("units", [5, 300, 70_000])
def test_draws_are_the_same_kept_or_not_and_hold_any_count(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrow type holds even a draw of one unit every time, and memory changes no number."""
    table = np.random.default_rng(10).random((3, units))
    kept = s.bootstrap_means(table, resample_seeds=True, resamples=700 if units < 1000 else 20)
    monkeypatch.setattr(resampling, "KEPT_BYTES", 0)
    anew = s.bootstrap_means(table, resample_seeds=True, resamples=700 if units < 1000 else 20)
    assert kept.tobytes() == anew.tobytes()
    pieces = list(resampling._draws(20, units, 0))
    assert all((piece.sum(1, dtype=int) == units).all() for piece in pieces)
    assert np.iinfo(pieces[0].dtype).max >= units


def test_kept_draws_are_bounded() -> None:
    resampling._kept_draws.cache_clear()
    s.bootstrap_means(np.zeros((1, 5_000)), resample_seeds=False)  # 10,000 x 5,000 x 2 bytes are more than is kept
    assert resampling._kept_draws.cache_info().currsize == 0
    for units in (10, 11, 12):
        s.bootstrap_means(np.zeros((1, units)), resample_seeds=False, resamples=10)
    assert resampling._kept_draws.cache_info().currsize == 2


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_unanimous_answers_have_wilsons_interval_over_problems(value: float) -> None:
    table = np.full((3, 200), value)
    table[1, :50] = np.nan
    table[:, 199] = np.nan  # scored by nobody: no problem of the interval
    expected = stats.binomtest(int(199 * value), 199).proportion_ci(0.95, method="wilson")
    interval = s.seed_interval(table)
    assert interval is not None and (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert s.seed_interval(table, [f"passage {i % 20}" for i in range(200)]) == s.wilson_interval(int(20 * value), 20)
    assert s.seed_interval(table[:2]) is None
    table[0, 0] = 0.5
    assert s.unanimous_interval(table) is None and s.seed_interval(table) != interval
    assert s.unanimous_interval(np.full((3, 4), np.nan)) is None


def test_no_interval_below_three_seeds() -> None:
    table = np.random.default_rng(6).random((2, 25))
    assert s.seed_interval(table) is None
    test = s.paired_test(table)
    assert test.interval is None and test.p_value is not None and "no interval below 3 seeds" in test.rule


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
@settings(max_examples=40, deadline=None)
def test_sign_flip_against_scipy(differences: list[int]) -> None:
    values = np.array(differences, float)
    ours = s.sign_flip_p_value(values)
    if len(values) == 1:
        assert ours == 1.0  # both signs are as far from 0
        return
    exact = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    # scipy doubles the smaller tail; by symmetry that is the share at least as far out on either side, capped at 1.
    assert ours == pytest.approx(exact.pvalue, abs=1e-12)


def test_sign_flip_hand_computed() -> None:
    # 1+1+1 = 3: of the 8 patterns only +++ and --- are as far out.
    assert s.sign_flip_p_value([1.0, 1.0, 1.0]) == 0.25
    # Sums of +-0.1 +-0.2 +-0.3 with |sum| >= 0.4 in exact arithmetic: 0.6 and 0.4 on both sides, 4 of 8. Binary
    # rounding makes 0.3+0.2-0.1 differ from 0.4: the comparison must not.
    assert s.sign_flip_p_value([-0.1, 0.2, 0.3]) == 0.5
    with pytest.raises(ValueError, match="too many"):
        s.sign_flip_p_value(np.ones(40))
    with pytest.raises(ValueError, match="at least one"):
        s.sign_flip_p_value([])


def test_paired_test_chooses_the_exact_test_for_few_units() -> None:
    differences = np.array([[1.0] * 5, [1.0] * 5, [1.0] * 5])
    few = s.paired_test(differences)
    assert few.p_value == 2 / 2**5 and few.units == 5 and few.rule.startswith("exact sign-flip")
    many = s.paired_test(np.ones((3, 40)))
    assert many.p_value == pytest.approx(1 / 10_001) and many.units == 40 and "bootstrap" in many.rule
    clustered = s.paired_test(np.ones((1, 40)), ["a"] * 20 + ["b"] * 20)
    assert clustered.units == 2 and clustered.p_value == 0.5


def test_no_difference_is_no_surprise() -> None:
    assert s.paired_test(np.zeros((3, 40))).p_value == 1.0
    assert s.paired_test(np.zeros((1, 6))).p_value == 1.0


def test_paired_bootstrap_agrees_with_a_t_test_on_well_behaved_differences() -> None:
    differences = np.random.default_rng(7).normal(0.1, 0.5, (1, 200))
    expected = stats.ttest_1samp(differences[0], 0).pvalue
    assert s.paired_test(differences).p_value == pytest.approx(expected, abs=0.01)


def test_seeds_that_disagree_are_no_evidence() -> None:
    """Many problems cannot make up for one lucky seed among three: resampling problems alone would say p < 0.001."""
    rng = np.random.default_rng(8)
    table = np.array([[0.3], [0.0], [-0.1]]) + rng.normal(0, 0.05, (3, 300))
    test = s.paired_test(table)
    assert test.p_value is not None and test.p_value > 0.2
    assert test.interval is not None and test.interval.low < 0 < test.interval.high
    problems_alone = s.paired_test(table.mean(0)).p_value
    assert problems_alone is not None and problems_alone < 0.001


def test_unscored_pairs_are_left_out() -> None:
    table = np.ones((3, 30))
    table[0, :10] = np.nan
    assert s.paired_test(table).difference == 1.0
    with pytest.raises(ValueError, match="no problem that both"):
        s.paired_test(np.array([[np.nan, np.nan], [1.0, 1.0]]))


def test_coverage_of_the_interval_over_seeds_and_problems() -> None:
    """95 % intervals hold the truth in 93 to 100 % of simulated studies while seeds differ by a few points."""
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(200):
        problems, seeds = rng.normal(0, 0.2, 100), rng.normal(0, 0.03, 3)
        table = rng.random((3, 100)) < np.clip(0.5 + seeds[:, None] + problems[None], 0, 1)
        means = s.bootstrap_means(table.astype(float), resample_seeds=True, resamples=1000)
        low, high = np.quantile(means, [0.025, 0.975])
        held += low <= 0.5 <= high
    assert held / 200 >= 0.93


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1, then the running maximum.
    assert s.holm([0.04, 0.01, None, 0.03, 0.02]) == pytest.approx([0.06, 0.04, None, 0.06, 0.06])
    assert s.holm([0.5, 0.9]) == [1.0, 1.0]
    assert s.holm([]) == []
    assert s.holm([None]) == [None]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = s.holm(p_values)
    assert all(a is not None and p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    pairs = sorted(zip(p_values, adjusted, strict=True), key=lambda pair: pair[0])
    assert [a for _, a in pairs] == sorted(a for _, a in pairs if a is not None)
