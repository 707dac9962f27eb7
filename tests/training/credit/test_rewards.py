from __future__ import annotations

import pytest

from training.credit.rewards import gated, mixed_groups, uneven_groups

REWARDS = [1.0, 0.0, None, 0.5, 0.5, 0.1, 0.1, 0.1]
GROUPS = [0, 0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("all", [True] * 8),
        ("positive_advantage", [True, False, None, False, False, False, False, False]),
        ("passed", [True, False, None, True, True, False, False, False]),
        ("failed", [False, True, None, False, False, True, True, True]),
    ],
)
def test_gates_by_hand(gate: str, expected: list[bool | None]) -> None:
    # 0.1 + 0.1 + 0.1 over 3 is not 0.1 in binary: an equal group must still be above nothing.
    assert gated(gate, REWARDS, GROUPS) == expected  # type: ignore[arg-type]


def test_groups_with_both_outcomes_and_groups_with_different_scores() -> None:
    assert mixed_groups(REWARDS, GROUPS) == {0}
    assert uneven_groups([1.0, None, 0.2, 0.3, 0.0, 0.0], [0, 0, 1, 1, 2, 2]) == {1}
