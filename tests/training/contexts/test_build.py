from __future__ import annotations

import pytest

from tests.training.contexts.hand_made import MARKED, byte_renderer, problem
from training.contexts.build import build_contexts
from training.contexts.rows import ContextRow, PrivilegedContext
from training.contexts.specs import (
    AnswerContext,
    Context,
    DemonstrationContext,
    NoContext,
    OtherProblemContext,
    SolutionContext,
)

A, B, C = (problem(name, solution=f"worked {name}", answer=f"answer {name}") for name in "abc")
GROUPED = [ContextRow(p, group) for group, p in enumerate((A, B, C)) for _ in range(2)]
SINGLE = [ContextRow(A, 0), ContextRow(B, 1), ContextRow(A, 2)]


def built(context: Context, rows: list[ContextRow]) -> list[PrivilegedContext]:
    found = build_contexts(context, rows, MARKED, byte_renderer())
    assert all(found)
    return [one for one in found if one is not None]


def test_no_context_adds_nothing_and_masks_nothing() -> None:
    assert built(NoContext(), SINGLE) == [PrivilegedContext(None)] * 3


def test_solution_and_answer_are_the_rows_own() -> None:
    assert [one.text for one in built(SolutionContext(), SINGLE)] == [f"<solution>worked {name}" for name in "aba"]
    assert [one.text for one in built(AnswerContext(), SINGLE)] == [f"<answer>answer {name}" for name in "aba"]
    assert [one.source for one in built(AnswerContext(), SINGLE)] == ["a", "b", "a"]


def test_other_problem_takes_the_next_problem_with_another_id_and_wraps_around() -> None:
    found = built(OtherProblemContext(), GROUPED)
    assert [one.source for one in found] == ["b", "b", "c", "c", "a", "a"]
    assert [one.text for one in found] == [f"<solution>worked {name}" for name in "bbccaa"]
    assert [one.text for one in built(OtherProblemContext(shows="answer"), GROUPED)] == [
        f"<answer>answer {name}" for name in "bbccaa"
    ]


def test_a_problem_drawn_twice_in_a_row_is_passed_over() -> None:
    rows = [ContextRow(A, 0), ContextRow(A, 1), ContextRow(B, 2)]
    assert [one.source for one in built(OtherProblemContext(), rows)] == ["b", "b", "a"]


def test_demonstrations_show_the_own_solution_or_another_problem_with_its_statement() -> None:
    assert [one.text for one in built(DemonstrationContext(), SINGLE)] == [
        f"<demonstration>worked {name}" for name in "aba"
    ]
    shown = built(DemonstrationContext(of="another_problem"), GROUPED)
    assert [one.text for one in shown[::2]] == [f"<demonstration>ask {name}->worked {name}" for name in "bca"]


def test_a_batch_of_one_problem_has_no_other() -> None:
    for context in (OtherProblemContext(), DemonstrationContext(of="another_problem")):
        with pytest.raises(ValueError, match=r"all 2 rows are of problem 'a'.*batch\.prompts"):
            built(context, [ContextRow(A, 0), ContextRow(A, 0)])


def test_a_missing_solution_or_answer_is_named() -> None:
    for text in (None, "", " \n"):
        with pytest.raises(ValueError, match=r"problem 'd' \(toy, train\) has no solution"):
            built(SolutionContext(), [ContextRow(problem("d", solution=text), 0)])
    with pytest.raises(ValueError, match=r"problem 'd' \(toy, train\) has no answer"):
        built(AnswerContext(), [ContextRow(problem("d", answer=""), 0)])
