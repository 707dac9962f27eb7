"""Lengths and switches refused before any work, for every kind of context, at the exact token."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks.addition import ADDITION
from evaluation.samplers.base import SamplingParams
from training.base_models import BASE_MODELS, ResolvedModel
from training.base_models.language import CONTEXT_LANGUAGE
from training.lengths import check_run_lengths, lengths_key
from training.method import Method, override_all
from training.methods import METHODS
from training.sources import Sources
from training.spec import DataSpec, EvaluationSpec, ModelSpec, RunSpec, UpdatesBudget

QUESTION, SOLUTION, ANSWER, NEW = 10, 32 - 1, 4, 34
"""Tokens of a rendered question of three-digit addition, of its solution, of its answer, and of a rollout."""
HINT = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's tokenizer and configuration; no weights are needed."""
    shipped = BASE_MODELS["tiny-small"].shipped
    assert shipped is not None
    target = tmp_path_factory.mktemp("model")
    for file in shipped.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, target)
    return target


def model(folder: Path, positions: int, template: str | None = None) -> ResolvedModel:
    config = json.loads((folder / "config.json").read_text())
    here = folder / str(positions) / str(template is not None)
    if not here.exists():
        here.mkdir(parents=True)
        for file in folder.iterdir():
            if file.is_file():
                shutil.copy(file, here)
        (here / "config.json").write_text(json.dumps({**config, "max_position_embeddings": positions}))
        if template is not None:
            (here / "chat_template.jinja").write_text(template)
    return ResolvedModel(here, "hash", "{problem}<|hint|>{context}", "tiny", CONTEXT_LANGUAGE)


def spec(method: Method | None, **evaluation: Any) -> RunSpec:
    return RunSpec(
        method=method,
        model=ModelSpec(name="tiny-small"),
        data=DataSpec(train="addition"),
        budget=UpdatesBudget(updates=1),
        evaluation=EvaluationSpec(
            benchmarks=("addition",), sampling=SamplingParams(max_new_tokens=8), every_updates=1, **evaluation
        ),
        seed=0,
    )


def method(context: Any, **changes: Any) -> Method:
    """OPSD with this context, without thinking flags, unless ``changes`` (dots written ``__``) has some."""
    base = {
        "views.teacher.context": context,
        "views.student.thinking": None,
        "views.teacher.thinking": None,
        "sampling.max_new_tokens": NEW,
        "batch.group_size": 2,
    }
    return override_all(
        METHODS["opsd"], {**base, **{name.replace("__", "."): value for name, value in changes.items()}}
    )


def sources() -> Sources:
    train, test = ADDITION.load("train", limit=5), ADDITION.load("test", limit=3)
    return Sources(train, ADDITION, {"addition": (ADDITION, test)}, "hash")


BLOCKS: list[tuple[Any, int]] = [
    ("none", 0),
    ("solution", HINT + SOLUTION),
    ("answer", HINT + 1 + ANSWER),
    ("partial_solution", HINT + SOLUTION + 1 + 1 + ANSWER),
    ({"kind": "overlap_masked", "keep_answer": False}, HINT + SOLUTION + 1),
    ({"kind": "peer_success", "feedback": "never"}, HINT + 3 + NEW),
    ({"kind": "peer_success", "feedback": "never", "attempt": True}, HINT + 3 + NEW + 1 + 3 + NEW),
    ({"kind": "peer_success", "feedback": "always"}, HINT + 3 + NEW + 1 + 4),
    ({"kind": "environment_feedback"}, HINT + 4),
    ({"kind": "environment_feedback", "attempt": True}, HINT + 3 + NEW + 1 + 4),
    ({"kind": "self_critique", "max_new_tokens": 40, "attempt": True}, HINT + 3 + NEW + 1 + 5 + 40),
    ("demonstration", HINT + 3 + SOLUTION),
    ({"kind": "demonstration", "of": "another_problem"}, HINT + 3 + 7 + 1 + SOLUTION),
    ("other_problem", HINT + SOLUTION),
]


@pytest.mark.parametrize(("context", "block"), BLOCKS)
def test_the_longest_context_must_fit_to_the_token(folder: Path, context: Any, block: int) -> None:
    needed = QUESTION + block + NEW
    check_run_lengths(spec(method(context)), model(folder, needed), sources())
    with pytest.raises(ValueError, match=rf"with {NEW} new tokens that is {needed}, and the model takes {needed - 1}"):
        check_run_lengths(spec(method(context)), model(folder, needed - 1), sources())


def test_a_critique_needs_room_beside_the_attempt(folder: Path) -> None:
    critique = {"kind": "self_critique", "max_new_tokens": 100}
    asked = QUESTION + HINT + 6 + NEW
    assert asked + 100 > QUESTION + HINT + 5 + 100 + NEW, "here the request is what decides"
    check_run_lengths(spec(method(critique)), model(folder, asked + 100), sources())
    with pytest.raises(ValueError, match=rf"prompt with context has up to {asked} tokens; with 100 new tokens"):
        check_run_lengths(spec(method(critique)), model(folder, asked + 99), sources())


def test_a_bound_on_the_context_makes_it_fit(folder: Path) -> None:
    for context in ("solution", {"kind": "peer_success", "feedback": "never"}):
        bounded = method(context, views__teacher__max_context_tokens=20)
        needed = QUESTION + HINT + 20 + NEW
        check_run_lengths(spec(bounded), model(folder, needed), sources())
        with pytest.raises(ValueError, match=f"that is {needed}"):
            check_run_lengths(spec(bounded), model(folder, needed - 1), sources())


def test_a_view_that_nothing_looks_through_needs_no_room(folder: Path) -> None:
    spare = METHODS["opsd"].model_dump()["views"]["teacher"]
    grpo = METHODS["grpo"]
    unused = override_all(
        grpo, {"views": {"student": {"weights": "student"}, "spare": spare}, "sampling.max_new_tokens": NEW}
    )
    check_run_lengths(spec(unused), model(folder, QUESTION + NEW), sources())


def test_thinking_needs_a_template_with_a_switch(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"evaluation\.thinking is set, .* no thinking switch"):
        check_run_lengths(spec(None, thinking=True), model(folder, 256), sources())
    with pytest.raises(ValueError, match=r"views\.teacher\.thinking is set, .* no thinking switch"):
        check_run_lengths(spec(method("solution", views__teacher__thinking=False)), model(folder, 256), sources())


def test_the_tokens_of_the_thinking_switch_count(folder: Path) -> None:
    template = (
        (folder / "chat_template.jinja")
        .read_text()
        .replace(
            "{{- '<|assistant|>' -}}",
            "{{- '<|assistant|>' -}}"
            "{%- if enable_thinking is defined and not enable_thinking -%}{{- 'no' -}}{%- endif -%}",
        )
    )
    assert "enable_thinking" in template
    off = method("none", views__student__thinking=False)
    check_run_lengths(spec(off), model(folder, QUESTION + NEW + 2, template), sources())
    with pytest.raises(ValueError, match=f"its prompt has {QUESTION + 2} tokens"):
        check_run_lengths(spec(off), model(folder, QUESTION + NEW + 1, template), sources())


def test_the_words_of_a_views_own_template_count(folder: Path) -> None:
    worded = method("solution", views__teacher__template="use {context} for {problem}")
    needed = QUESTION + SOLUTION + len("use  for ") + NEW
    check_run_lengths(spec(worded), model(folder, needed), sources())
    with pytest.raises(ValueError, match=f"that is {needed}"):
        check_run_lengths(spec(worded), model(folder, needed - 1), sources())


def test_a_views_template_needs_its_fields(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"views\.teacher\.template .* needs \{context\} exactly once"):
        check_run_lengths(spec(method("solution", views__teacher__template="{problem}")), model(folder, 256), sources())


def test_what_needs_other_prompts_has_another_key() -> None:
    base = spec(method("solution"))
    assert lengths_key(base) == lengths_key(spec(method("solution", views__teacher__weights="ema")))
    for other in (
        spec(method("answer")),
        spec(method("solution", views__teacher__thinking=True)),
        spec(method("solution", views__teacher__max_context_tokens=9)),
        spec(method("solution", views__teacher__template="{context}{problem}")),
        spec(method("solution", sampling__max_new_tokens=35)),
        spec(method("solution"), thinking=True),
        spec(None),
    ):
        assert lengths_key(base) != lengths_key(other)


def test_references_count_with_their_end(folder: Path) -> None:
    sft = override_all(METHODS["sft"], {"sampling.max_new_tokens": 1})
    check_run_lengths(spec(sft), model(folder, QUESTION + SOLUTION + 1), sources())
    longer = [problem.model_copy(update={"solution": f"{problem.solution}0"}) for problem in sources().train]
    with pytest.raises(ValueError, match=f"with {SOLUTION + 2} new tokens"):
        check_run_lengths(spec(sft), model(folder, QUESTION + SOLUTION + 1), replace(sources(), train=longer))
