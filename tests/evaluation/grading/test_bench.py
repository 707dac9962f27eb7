"""The bench of grading runs, and its verdicts do not depend on the number of workers."""

from __future__ import annotations

import pytest

from evaluation.grading.bench import _grade_math, hanging_items, math_items, measure


@pytest.mark.slow
def test_one_and_two_workers_judge_alike() -> None:
    for make in (math_items, hanging_items):
        result = measure("math", _grade_math, make, size=12, workers=2, rounds=1)
        assert (result.items, result.right, result.workers) == (12, 12, 2)
        assert result.one > 0 and result.several > 0 and result.ratio > 0
