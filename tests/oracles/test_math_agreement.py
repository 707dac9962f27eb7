"""Our math graders against Math-Verify: on its own cases, and on completions of a model, every disagreement judged."""

from __future__ import annotations

import pytest

from tests.oracles.math_agreement import Judged, judged_completions, lenient, our_verdict, restated_cases

JUDGED = {
    ("smol_addition", "96+42"): (
        "fail",
        "the text ends in 'answer 96 + 42.': Math-Verify computes the question as if it were the answer; ours reads 42",
    ),
    ("gsm8k", "test-0039"): (
        "pass",
        "the text says 100, then ends in a remark with the number 10: the lenient reading takes the last number, which "
        "is the reference by chance; the strict verdict, which counts, is a fail",
    ),
}
"""Our lenient verdict where it differs from Math-Verify's, and why; ours is right in the first, wrong in the second."""


def test_each_case_of_math_verify_has_the_verdict_recorded_for_it() -> None:
    cases = restated_cases()
    assert len(cases) >= 170
    wrong = [case for case in cases if our_verdict(*case[:3]) != case[4]]
    assert wrong == []


def test_every_disagreement_on_those_cases_has_a_reason() -> None:
    differing = [case for case in restated_cases() if case[3] != case[4]]
    assert all(reason for *_, reason in differing)
    assert [case for case in restated_cases() if case[5] and case[3] == case[4]] == []
    assert len(differing) <= 20


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return judged_completions()


@pytest.mark.slow
def test_completions_of_a_model_are_judged_as_math_verify_does_but_for_the_listed_ones(judged: list[Judged]) -> None:
    assert len(judged) >= 200
    differing = {
        (one.benchmark, one.problem.id): lenient(one.ours)
        for one in judged
        if (lenient(one.ours) == "pass") != one.theirs
    }
    assert differing == {key: verdict for key, (verdict, _) in JUDGED.items()}


@pytest.mark.slow
def test_the_strict_verdict_never_passes_what_math_verify_fails(judged: list[Judged]) -> None:
    passed = [one for one in judged if one.ours.verdict == "pass"]
    assert len(passed) >= 9 and all(one.theirs for one in passed)
    assert all(one.ours.verdict != "not_scored" for one in judged)
