"""Leaks planted by hand are found, and a sound update has none."""

from __future__ import annotations

import pytest

from evaluation.problems import Message
from tests.training.small import ragged_problems, small_method, small_trainer
from training.leaks import FEWEST_CHARACTERS, leak_metrics
from training.update import run_update

SOLUTION = "12 + 30 = 42, so #42"


def test_shares_by_hand() -> None:
    """Of four prompts one holds the solution (other spaces); of three failed responses one repeats it."""
    prompts = ["What is 12 + 30?", "What is 12 + 30? Hint: 12+30 = 42,\nso #42", "a", "b"]
    responses = ["so #42 12 + 30", f"It says {SOLUTION}.", SOLUTION, None]
    failed = [True, True, False, True]
    found = leak_metrics(prompts, responses, failed, [{"teacher": SOLUTION}] * 4)
    assert found == {"context_in_prompt/teacher": 0.25, "context_copied/teacher": 0.5}


def test_views_are_counted_apart_and_short_contexts_are_not_looked_for() -> None:
    short = "4" * (FEWEST_CHARACTERS - 1)
    found = leak_metrics([f"{short} {SOLUTION}"], [short], [True], [{"a": short, "b": SOLUTION}])
    assert found == {"context_in_prompt/b": 1.0, "context_copied/b": 0.0}
    assert leak_metrics([short], [short], [True], [{}]) == {}


@pytest.mark.parametrize("leaks", [False, True])
def test_an_update_says_whether_its_students_saw_the_solution(leaks: bool) -> None:
    problems = ragged_problems(3)
    if leaks:
        shown = [Message(role="user", content=f"{p.prompt[-1].content} {p.solution}") for p in problems]
        problems = [p.model_copy(update={"prompt": (m,)}) for p, m in zip(problems, shown, strict=True)]
    result = run_update(small_trainer(small_method("opsd")), 1, problems)
    assert result.metrics["context_in_prompt/teacher"] == (1.0 if leaks else 0.0)
