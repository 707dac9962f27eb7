"""The table of contexts: real attempts, figures that are shares of the right problems, readable Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation.benchmarks.addition import ADDITION
from training.base_models import BASE_MODELS
from training.base_models.accuracy import addition_accuracy
from training.base_models.context_table import Base, Row, cases, critique_accuracy, main, markdown, rows
from training.base_models.shown import SHOWN, Attempt, Case


@pytest.fixture(scope="module")
def base() -> Base:
    folder = BASE_MODELS["tiny-small"].shipped
    assert folder is not None
    return Base(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), ADDITION)


@pytest.fixture(scope="module")
def made(base: Base) -> list[Case]:
    return cases(base, ADDITION.load("test", limit=12))


def test_attempts_are_drawn_and_graded(base: Base, made: list[Case]) -> None:
    assert all(len(case.attempts) == 8 for case in made)
    assert len({attempt.text for case in made for attempt in case.attempts}) > 24, "temperature 1 gives many texts"
    for case in made:
        for attempt in case.attempts:
            assert attempt.grade == ADDITION.grade(case.problem, attempt.text)
        assert (case.critique is None) == (case.informed_critique is None) == (case.failure is None)
        assert case.problem not in case.others
    assert made == cases(base, ADDITION.load("test", limit=12)), "seeded"


def test_figures_are_of_the_problems_that_have_the_context(base: Base, made: list[Case]) -> None:
    measured = {row.kind: row for row in rows(base, made)}
    assert set(measured) == {"none", *SHOWN}
    folder = BASE_MODELS["tiny-small"].shipped
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert measured["none"].own == pytest.approx(addition_accuracy(model, "nothing", 12))
    assert measured["solution"].own == pytest.approx(addition_accuracy(model, "own_solution", 12))
    assert measured["solution"].other == pytest.approx(addition_accuracy(model, "other_solution", 12))
    failed = [case for case in made if case.failure is not None]
    assert measured["feedback"].problems == len(failed)
    right = base.passed([(case.problem, None) for case in failed])
    assert measured["feedback"].without == pytest.approx(sum(right) / len(right))


def test_a_critique_is_right_when_it_says_what_the_environment_says() -> None:
    problem, first, second = ADDITION.load("test", limit=3)

    def criticised(text: str, critique: str | None, informed: str | None) -> Case:
        return Case(problem, (first, second), (Attempt(text, ADDITION.grade(problem, text)),), critique, informed)

    feedback = ADDITION.grade(problem, "#").feedback
    solved = criticised(str(problem.solution), None, None)
    made = [criticised("#", feedback, feedback), criticised("#", "ok", feedback), solved]
    assert critique_accuracy(made) == (2, 0.5, 1.0)


def test_markdown() -> None:
    measured = [Row("none", "", 4, 0.25, 0.25, 0.25), Row("answer", "#0902", 3, 1 / 3, 1.0, 0.0)]
    text = markdown("addition", measured, (3, 2 / 3, 1.0))
    assert "| none |  | 4 | 0.250 | | |" in text
    assert "| answer | `#0902` | 3 | 0.333 | 1.000 | 0.000 |" in text
    assert text.endswith(
        "Critiques of 3 failed attempts say what the environment's feedback says in 0.667 of cases, with the solution "
        "in view in 1.000."
    )


def test_a_model_of_another_language_is_refused(tmp_path: Path) -> None:
    shipped = BASE_MODELS["tiny-small"].shipped
    assert shipped is not None
    for file in shipped.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(SystemExit, match="does not speak the language"):
        main(["--model", str(tmp_path), "--cache", str(tmp_path / "cache")])
