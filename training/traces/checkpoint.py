"""Traces of the answers of one evaluation, by the weights of its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from safetensors.torch import load_file
from transformers import PreTrainedModel

from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import Answer, request_seed
from evaluation.problems import Problem, Split
from evaluation.results.spool import Spool
from training.checkpoints import STATE_FILE
from training.contexts.language import ContextLanguage
from training.controllers import Controllers
from training.credit.rewards import reward_of
from training.draws import Group
from training.learners.base import views_used
from training.learners.hf import HFLearner
from training.method import Method
from training.methods import METHODS
from training.rendering import Renderer
from training.rollouts import Rollout
from training.spec import RunSpec
from training.state import BUFFERS
from training.traces.recording import TraceRun, trace
from training.traces.teaching import student_of, teaching_of
from training.trainer import Trainer

NOT_LOOKED_THROUGH = ("optimiser", BUFFERS)
"""Files of a checkpoint that hold no weights."""


class CheckpointTracer:
    """Traces the first ``spec.evaluation.trace_problems`` problems of each benchmark, part by part.

    Teacher and numbers are those of the update after the checkpoint: what training would look through next. The
    student sees the prompt that was answered. The weights are loaded when the first part asks for them.
    """

    def __init__(
        self,
        spec: RunSpec,
        run_id: str,
        run_dir: Path,
        update: int,
        weights: Path | None,
        spool: Spool,
        base: PreTrainedModel,
        renderer: Renderer,
        language: ContextLanguage,
    ) -> None:
        """``weights`` is the student's file in its checkpoint's folder; None looks through the base model."""
        self._run = TraceRun(spool, run_dir, run_id)
        self._spec, self._update = spec, update
        self._folder = None if weights is None else weights.parent
        self._base, self._renderer, self._language = base, renderer, language

    def record(
        self,
        benchmark: Benchmark,
        split: Split,
        part: int,
        first: int,
        problems: Sequence[Problem],
        answers: Sequence[Answer],
    ) -> None:
        """Traces one part of an evaluation; ``first`` is the place of its first problem among all."""
        traced = problems[: max(0, self._spec.evaluation.trace_problems - first)]
        if not traced:
            return
        method, by_problem = self._method, {problem.id: [] for problem in traced}
        for answer in answers:
            if answer.problem_id in by_problem:
                by_problem[answer.problem_id].append(answer)
        groups = [
            Group(problem, [self._rollout(method, problem, place, answer) for answer in by_problem[problem.id]])
            for place, problem in enumerate(traced)
        ]
        trace(
            self._run,
            self._trainer(benchmark),
            method,
            groups,
            source="evaluation",
            update=self._update,
            student_update=self._update,
            seeds=[request_seed(self._spec.seed, benchmark.name, problem.id, 0) for problem in traced],
            samples=[0] * len(traced),
            name=f"{self._update:06d}-{benchmark.name}-{split}-{part:04d}",
        )

    def _rollout(self, method: Method, problem: Problem, place: int, answer: Answer) -> Rollout:
        grade, length = answer.grade, len(answer.completion.token_ids)
        scored = grade.score is not None and grade.verdict != "not_scored"
        longest = self._spec.evaluation.sampling.max_new_tokens
        return Rollout(
            problem,
            place,
            self._renderer.student_ids(problem, thinking=self._spec.evaluation.thinking),
            answer.completion,
            answer.text,
            grade,
            reward_of(method.reward, grade.score or 0.0, length, longest) if scored else None,
            self._update,
            place * self._spec.evaluation.samples + answer.sample_index,
        )

    @cached_property
    def _method(self) -> Method:
        """The method of the next update; its student reads prompts as the evaluation wrote them."""
        # The untrained model has no method. SFT's only view is the student, and it has no teacher.
        whole = self._spec.method or METHODS["sft"].model_copy(update={"adapter": None})
        controllers = Controllers(whole)
        if self._folder is not None:
            saved = json.loads((self._folder / STATE_FILE).read_text())
            controllers.load_state(saved["training"]["controllers"])
        method = whole.at(self._update + 1, controllers.outputs())
        name = student_of(method, teaching_of(method))
        student = method.views[name].model_copy(update={"thinking": self._spec.evaluation.thinking})
        return method.model_copy(update={"views": {**method.views, name: student}})

    @cached_property
    def _learner(self) -> HFLearner:
        method = self._method
        learner = HFLearner(
            self._base,
            {name: phase.optimiser for name, phase in method.phases.items()},
            self._spec.compute,
            views_used(method.views, method.views_used()),
            end_ids=self._renderer.end_ids,
            pad_id=self._renderer.pad_id,
            adapter=method.adapter,
            seed=self._spec.seed,
        )
        if self._folder is not None:
            files = [file for file in self._folder.glob("*.safetensors") if file.stem not in NOT_LOOKED_THROUGH]
            learner.load_views({file.stem: load_file(file) for file in files})
        return learner

    def _trainer(self, benchmark: Benchmark) -> Trainer:
        return Trainer(
            method=self._method,
            learner=self._learner,
            renderer=self._renderer,
            language=self._language,
            benchmark=benchmark,
            compute=self._spec.compute,
            run_seed=self._spec.seed,
        )
