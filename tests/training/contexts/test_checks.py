"""Refusals before work: each names the place and the fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Grade
from tests.training.contexts.hand_made import problem
from training.contexts.checks import check_problems, sample_feedback
from training.method import Method, override_all
from training.methods import METHODS

A, B = problem("a"), problem("b")
NO_SOLUTION, NO_ANSWER = problem("d", solution=None), problem("d", answer=" ")


def opsd(context: Any, **changes: Any) -> Method:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return override_all(METHODS["opsd"], {"views.teacher.context": context, **dotted})


def saying(feedback: str | None) -> Benchmark:
    failed = Grade(verdict="fail", score=0.0, grader="toy", version="1", feedback=feedback)
    return replace(ADDITION, name="toy", grade=lambda problem, text: failed)


@pytest.mark.parametrize("key", ["opsd", "opsd_v1", "sft"])
def test_methods_that_read_solutions_refuse_problems_without_one(key: str) -> None:
    with pytest.raises(ValueError, match=r"problem 'd' \(toy, train\) has no solution, which .*: add a solution"):
        check_problems(METHODS[key], [A, NO_SOLUTION])
    with pytest.raises(ValueError, match="problem 'd'"):
        check_problems(METHODS[key], [A, problem("d", solution="  \n")])


@pytest.mark.parametrize(
    ("context", "lacks"),
    [
        ("solution", ["solution"]),
        ("answer", ["answer"]),
        ("partial_solution", ["solution", "answer"]),
        ({"kind": "partial_solution", "keep_answer": False}, ["solution"]),
        ("overlap_masked", ["solution", "answer"]),
        ("demonstration", ["solution"]),
        ({"kind": "other_problem", "shows": "answer"}, ["answer"]),
        ("other_problem", ["solution"]),
        ("peer_success", []),
        ("self_critique", []),
        ("none", []),
    ],
)
def test_what_each_context_needs_of_a_problem(context: Any, lacks: list[str]) -> None:
    method = opsd(context, batch__group_size=2)
    check_problems(method, [A, B])
    for what, lacking in (("solution", NO_SOLUTION), ("answer", NO_ANSWER)):
        if what in lacks:
            with pytest.raises(ValueError, match=rf"problem 'd' .* has no {what}, which views\.teacher\.context"):
                check_problems(method, [A, B, lacking])
        else:
            check_problems(method, [A, B, lacking])


def test_grpo_needs_no_solution_and_no_method_goes_without_problems() -> None:
    check_problems(METHODS["grpo"], [NO_SOLUTION])
    with pytest.raises(ValueError, match="training data is empty"):
        check_problems(METHODS["grpo"], [])


def test_a_view_that_nothing_looks_through_asks_for_nothing() -> None:
    unused = override_all(
        METHODS["grpo"],
        {"views": {**METHODS["grpo"].model_dump()["views"], "spare": METHODS["opsd"].model_dump()["views"]["teacher"]}},
    )
    check_problems(unused, [NO_SOLUTION])


@pytest.mark.parametrize("context", ["other_problem", {"kind": "demonstration", "of": "another_problem"}])
def test_another_problem_must_be_in_every_batch(context: Any) -> None:
    check_problems(opsd(context), [A, B])
    with pytest.raises(ValueError, match=r"views\.teacher\.context (other_problem|demonstration) .* 1 problem"):
        check_problems(opsd(context), [A])
    with pytest.raises(ValueError, match=r"set batch\.prompts \(now 1\) to 3 or more"):
        check_problems(opsd(context, batch__prompts=1), [A, B])


def test_a_group_of_one_has_no_peers() -> None:
    never = {"kind": "peer_success", "feedback": "never"}
    with pytest.raises(ValueError, match=r"views\.teacher\.context peer_success .*batch\.group_size \(now 1\) to 2"):
        check_problems(opsd(never), [A])
    check_problems(opsd(never, batch__group_size=2), [A], saying(None))
    check_problems(opsd({**never, "exclude_self": False}), [A])


@pytest.mark.parametrize("context", ["peer_success", "environment_feedback"])
def test_feedback_that_nobody_gives_is_refused(context: str) -> None:
    check_problems(opsd(context), [A], saying("wrong"))
    for silent in (None, "", " "):
        with pytest.raises(ValueError, match=rf"views\.teacher\.context {context} needs feedback .* 'toy' gives none"):
            check_problems(opsd(context), [A], saying(silent))
    if context == "peer_success":
        check_problems(opsd(context, batch__group_size=2), [A], saying(None))


def test_the_shipped_benchmarks_give_feedback() -> None:
    assert len(sample_feedback(ADDITION, ADDITION.load("train", limit=5))) == 3


@pytest.mark.parametrize("context", ["peer_success", "environment_feedback", "self_critique", "overlap_masked"])
def test_contexts_of_rollouts_need_rollouts(context: str) -> None:
    method = opsd(context, batch__group_size=2)
    with pytest.raises(ValueError, match=rf"views\.student\.context {context} .* rollout_view"):
        check_problems(override_all(method, {"views.student.context": context, "views.teacher.context": "none"}), [A])
    on_references = override_all(method, {"phases.student.terms.distill.data": "references"})
    with pytest.raises(ValueError, match=rf"views\.teacher\.context {context} .* at references"):
        check_problems(on_references, [A])
