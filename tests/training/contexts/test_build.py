from __future__ import annotations

import pytest

from evaluation.problems import Message, Problem
from training.contexts.build import build_contexts, check_problems
from training.contexts.specs import NoContext, OtherProblemContext, SolutionContext
from training.method import override
from training.methods import METHODS


def _problem(name: str, solution: str | None = "worked") -> Problem:
    return Problem(
        id=name,
        benchmark="toy",
        split="train",
        prompt=(Message(role="user", content=name),),
        answer="1",
        solution=None if solution is None else f"{solution} {name}",
    )


A, B, C = _problem("a"), _problem("b"), _problem("c")


def test_no_context_adds_nothing_and_masks_nothing() -> None:
    built = build_contexts(NoContext(), [A, B])

    assert [context is not None and context.text for context in built] == [None, None]


def test_solution_is_the_own_solution() -> None:
    built = build_contexts(SolutionContext(), [A, B, A])

    assert [context.text for context in built if context] == ["worked a", "worked b", "worked a"]


def test_other_problem_takes_the_next_problem_with_another_id_and_wraps_around() -> None:
    grouped = [A, A, B, B, C, C]

    built = build_contexts(OtherProblemContext(), grouped)

    assert [context.source for context in built if context] == ["b", "b", "c", "c", "a", "a"]
    assert [context.text for context in built if context] == [
        "worked b",
        "worked b",
        "worked c",
        "worked c",
        "worked a",
        "worked a",
    ]


def test_other_problem_in_a_batch_of_one_problem_is_refused() -> None:
    with pytest.raises(ValueError, match=r"all 2 rows are of problem 'a'.*batch\.prompts"):
        build_contexts(OtherProblemContext(), [A, A])


def test_a_missing_solution_is_named() -> None:
    with pytest.raises(ValueError, match="problem 'd'"):
        build_contexts(SolutionContext(), [A, _problem("d", None)])


@pytest.mark.parametrize("key", ["opsd", "opsd_v1", "sft"])
def test_methods_that_read_solutions_refuse_problems_without_one_before_work(key: str) -> None:
    with pytest.raises(ValueError, match=r"problem 'd' \(toy, train\) has no solution"):
        check_problems(METHODS[key], [A, _problem("d", None)])


def test_a_blank_solution_is_no_solution() -> None:
    blank = A.model_copy(update={"solution": "  \n"})

    with pytest.raises(ValueError, match="problem 'a'"):
        check_problems(METHODS["opsd"], [blank])


def test_grpo_needs_no_solution() -> None:
    check_problems(METHODS["grpo"], [_problem("d", None)])


def test_no_problems_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="training data is empty"):
        check_problems(METHODS["grpo"], [])


def test_the_control_is_refused_before_work_when_no_batch_can_hold_two_problems() -> None:
    control = override(METHODS["opsd"], "views.teacher.context", "other_problem")

    check_problems(control, [A, B])
    with pytest.raises(ValueError, match=r"views\.teacher\.context other_problem .* 1 problem"):
        check_problems(control, [A])
    with pytest.raises(ValueError, match=r"set batch\.prompts \(now 1\) to 3 or more"):
        check_problems(override(control, "batch.prompts", 1), [A, B])
