from __future__ import annotations

import pytest

from training.credit.alignment import SIMILARITIES, Similarity, compared_ids


@pytest.mark.parametrize(
    ("name", "expected"),
    # Rollout 1 2 2 3 against 2 1 2: overlap {1, 2, 2}; common subsequence 1 2 (or 2 2); three edits in four places.
    [("token_f1", 6 / 7), ("rouge_l", 4 / 7), ("edit_distance", 0.25), ("exact_match", 0.0)],
)
def test_similarities_by_hand(name: Similarity, expected: float) -> None:
    assert SIMILARITIES[name]((1, 2, 2, 3), (2, 1, 2)) == pytest.approx(expected)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_of_equal_and_empty_ids(name: Similarity) -> None:
    assert SIMILARITIES[name]((4, 5), (4, 5)) == 1
    assert SIMILARITIES[name]((), ()) == 1
    assert SIMILARITIES[name]((), (4,)) == SIMILARITIES[name]((4,), ()) == 0


def test_thinking_is_left_out_where_only_one_side_has_it() -> None:
    end, thought_end = 0, 9
    special = frozenset({end})

    assert compared_ids((7, 9, 1, 2, 0), (1, 2, 0), special, thought_end) == ([1, 2], [1, 2])
    assert compared_ids((7, 9, 1, 0), (8, 9, 1, 0), special, thought_end) == ([7, 9, 1], [8, 9, 1])
    assert compared_ids((7, 9, 1), (1,), special, None) == ([7, 9, 1], [1])
