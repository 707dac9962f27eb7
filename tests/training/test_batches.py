from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.batches import ContextOverflowError, align, row_chunks, token_index

PAD = 0
ids = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.lists(st.tuples(ids, ids, ids), min_size=1, max_size=5))
def test_every_view_predicts_the_same_token_from_its_own_prompt(rows: list[tuple[list[int], ...]]) -> None:
    student = align([row[0] for row in rows], [row[2] for row in rows], pad_id=PAD)
    teacher = align([row[1] for row in rows], [row[2] for row in rows], pad_id=PAD)
    wanted = [(row, t, token) for row, (_, _, response) in enumerate(rows) for t, token in enumerate(response)]

    for view, prompts in ((student, [row[0] for row in rows]), (teacher, [row[1] for row in rows])):
        assert [(int(r), int(c)) for r, c in zip(view.rows, view.columns, strict=True)] == [
            (row, len(prompts[row]) - 1 + t) for row, t, _ in wanted
        ]
        assert view.ids[view.rows, view.columns + 1].tolist() == [token for _, _, token in wanted]


def test_gather_takes_the_state_at_the_predicting_position() -> None:
    batch = align([[5], [6, 7, 8]], [[1, 2, 3], [4]], pad_id=PAD)
    # A model whose state at (row, column) says so.
    states = torch.stack(
        torch.meshgrid(torch.arange(2.0), torch.arange(float(batch.ids.shape[1])), indexing="ij"), dim=-1
    )

    assert batch.gather(states).tolist() == [[0, 0], [0, 1], [0, 2], [1, 2]]


def test_padding_is_on_the_right_and_masked_by_length_even_where_pad_is_the_end_token() -> None:
    end = PAD
    batch = align([[5, 6], [7]], [[1, end], [2, 3, 4, end]], pad_id=PAD)

    assert batch.ids.tolist() == [[5, 6, 1, end, PAD], [7, 2, 3, 4, end]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    labels = batch.ids[batch.rows, batch.columns + 1]
    assert labels.tolist() == [1, end, 2, 3, 4, end]
    assert batch.tokens == 9


def test_overflow_is_an_error_that_names_the_problem_and_the_lengths() -> None:
    align([[1] * 6], [[2] * 4], pad_id=PAD, context_length=10)

    with pytest.raises(ContextOverflowError, match=r"problem 'x': prompt of 7 and response of 4 .* context of 10"):
        align([[1] * 3, [1] * 7], [[2] * 4] * 2, pad_id=PAD, context_length=10, names=["problem 'w'", "problem 'x'"])


@pytest.mark.parametrize(("prompt", "response", "what"), [([], [1], "prompt"), ([1], [], "response")])
def test_empty_prompts_and_responses_are_refused(prompt: list[int], response: list[int], what: str) -> None:
    with pytest.raises(ValueError, match=f"row 0: empty {what}"):
        align([prompt], [response], pad_id=PAD)


def test_token_index_counts_within_each_row() -> None:
    sequence, position = token_index([[7, 7], [7], [7, 7, 7]])

    assert sequence.tolist() == [0, 0, 1, 2, 2, 2]
    assert position.tolist() == [0, 1, 0, 0, 1, 2]


def test_row_chunks_cover_every_row_once() -> None:
    assert [list(chunk) for chunk in row_chunks(5, 2)] == [[0, 1], [2, 3], [4]]
    assert row_chunks(0, 2) == []
