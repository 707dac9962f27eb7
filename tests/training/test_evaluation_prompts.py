"""What a checkpoint is asked in an evaluation: the plain question, under the evaluation's own thinking flag."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import training.checkpoint_evaluation
from evaluation.problems import Problem
from evaluation.results.spool import Spool
from evaluation.samplers.base import SamplingParams
from training.base_models import BASE_MODELS
from training.checkpoint_evaluation import evaluate_checkpoint
from training.method import override_all
from training.methods import METHODS
from training.spec import DataSpec, EvaluationSpec, ModelSpec, RunSpec, UpdatesBudget

SWITCH = "{%- if enable_thinking is defined and not enable_thinking -%}{{- '#' -}}{%- endif -%}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small base with a thinking switch in its chat template: off, the assistant's turn begins with ``#``."""
    shipped = BASE_MODELS["tiny-small"].shipped
    assert shipped is not None
    target = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(shipped, target)
    template = target / "chat_template.jinja"
    header = "{{- '<|assistant|>' -}}"
    assert header in template.read_text()
    template.write_text(template.read_text().replace(header, header + SWITCH))
    return target


@pytest.mark.parametrize(("thinking", "ending"), [(None, ""), (True, ""), (False, "#")])
def test_evaluation_asks_the_plain_question_under_its_own_flag(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thinking: bool | None, ending: str
) -> None:
    asked: list[tuple[Problem, tuple[int, ...]]] = []

    def capture(sampler: Any, render: Callable[[Problem], tuple[int, ...]], *rest: Any, **how: Any) -> list[Any]:
        problems = rest[2]
        asked.extend((problem, render(problem)) for problem in problems)
        return []

    monkeypatch.setattr(training.checkpoint_evaluation, "evaluate", capture)
    monkeypatch.setattr(training.checkpoint_evaluation, "record_answers", lambda *rest: None)
    spec = RunSpec(
        method=override_all(METHODS["opsd"], {"views.student.thinking": True, "adapter": None}),
        model=ModelSpec(name=str(folder), privileged_template="{problem}<|hint|>{context}"),
        data=DataSpec(train="addition"),
        budget=UpdatesBudget(updates=1),
        evaluation=EvaluationSpec(
            benchmarks=("addition",),
            problems=3,
            sampling=SamplingParams(max_new_tokens=4),
            every_updates=1,
            thinking=thinking,
        ),
        seed=0,
    )
    with Spool(tmp_path, role="evaluator", attempt=1) as spool:
        evaluate_checkpoint(spec, "run", tmp_path, None, 0, {}, spool, cache=tmp_path / "cache", benchmarks_root=None)

    from training.base_models.tokenizer import VOCABULARY, question_ids

    assert len(asked) == 3
    for problem, ids in asked:
        assert list(ids) == question_ids(problem.id) + [VOCABULARY[character] for character in ending]
