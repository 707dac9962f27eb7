"""The segments of one run, in a worker process: from checkpoint to checkpoint, bit for bit.

A segment is the updates between two evaluations. Training draws no random number of its own: each rollout's seed is a
hash of (run seed, update, place), the order of problems is a function of the run's seed, and dropout is off. So the
state is the learner's, what training.state holds and the update's number, and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.data import solutions_graded_wrong, training_order
from evaluation.problems import Problem
from evaluation.results.records import StepRecord
from evaluation.results.spool import Spool
from training.base_models import resolve_model
from training.checkpoint_evaluation import evaluate_checkpoint, evaluate_segment
from training.checkpoints import CheckpointError, SegmentReport, load_segment, save_segment, segment_report
from training.contexts.checks import check_problems, needs_solution
from training.learners.base import views_used
from training.learners.hf import HFLearner
from training.learners.loading import fix_numerics, load_base, load_renderer
from training.method import Method
from training.recording import RolloutRecorder
from training.rendering import language_of
from training.spec import RunSpec, UpdatesBudget
from training.state import BUFFERS, TrainingState
from training.trainer import Trainer
from training.update import UpdateResult, run_update
from training.warm import warm_sources

__all__ = ["Session", "evaluate_checkpoint", "evaluate_segment"]

ROLE = "trainer"

_log = logging.getLogger(__name__)


class Session:
    """Trains the segments of one run. Base weights stay in the process for the next session.

    Raises ValueError for a run without a method, and for training problems that its method cannot use.
    """

    def __init__(
        self,
        spec: RunSpec,
        run_id: str,
        run_dir: Path,
        *,
        cache: Path,
        benchmarks_root: Path | None,
        attempt: int,
    ) -> None:
        if spec.method is None:
            raise ValueError(f"run {run_id} has no method: it is evaluated, not trained")
        self.spec = spec
        self.run_id = run_id
        self.run_dir = run_dir
        self.attempt = attempt
        self._method = spec.method
        sources = warm_sources(spec, benchmarks_root)
        if sources.train_benchmark is None:
            raise ValueError(f"run {run_id} has no training data: set data.train")
        check_problems(spec.method, sources.train, sources.train_benchmark)
        self._problems = sources.train
        self._benchmark = sources.train_benchmark
        self._device = fix_numerics(spec.compute)
        self._model = resolve_model(spec.model, cache)
        self._base = load_base(self._model.path, self._model.content_hash, self._device)
        self._renderer = load_renderer(self._model, self._base, spec.model.system_prompt)
        self._spool = Spool(run_dir, role=ROLE, attempt=attempt)
        self._trainer: Trainer | None = None
        self._training = TrainingState.initial(spec.method)
        self._held: int | None = None
        self._graded: dict[str, bool] = {}
        self._update = 0
        self._cost: Counter[str] = Counter()

    def run_segment(self, segment: int) -> SegmentReport:
        """Trains segment ``segment`` (from 1) and writes its checkpoint; one that is done is only reported.

        Starts from the end of the segment before, from its checkpoint unless this session holds just that state.
        Raises CheckpointError when that is missing, ValueError when the run's budget was spent before, and what
        run_update raises; after an error the next call starts from a checkpoint again.
        """
        if segment < 1:
            raise ValueError(f"segments count from 1, got {segment}")
        done = segment_report(self.run_dir, segment)
        if done is not None:
            return done
        trainer = self._restore(segment - 1)
        if segment > 1 and self._finished():
            raise ValueError(f"run {self.run_id} ended with segment {segment - 1}: there is no segment {segment}")
        self._held = None
        first = self._update + 1
        recorder = RolloutRecorder(self._spool, self.run_dir, self.run_id, segment, self._benchmark.version)
        while not self._finished() and self._update - first + 1 < self.spec.evaluation.every_updates:
            self._one_update(trainer, segment, recorder)
        recorder.close()
        self._spool.flush()
        report = save_segment(
            self.run_dir,
            segment,
            {**trainer.learner.state(), **({BUFFERS: buffers} if (buffers := self._training.tensors()) else {})},
            self._state(segment),
            first_update=first,
            finished=self._finished(),
        )
        self._held = segment
        return report

    def close(self) -> None:
        """Flushes and closes the spool."""
        self._spool.close()

    # --- one update ----------------------------------------------------------------------------------------------

    def _one_update(self, trainer: Trainer, segment: int, recorder: RolloutRecorder) -> None:
        update = self._update + 1
        result = run_update(trainer, update, self._next_problems(), self._training, more=self._next_problems)
        self._update = update
        self._cost.update(result.cost)
        recorder.add(result)
        self._spool.append(
            StepRecord(
                run_id=self.run_id,
                update=update,
                segment=segment,
                metrics={**result.metrics, **self._solutions_graded_wrong(trainer, result)},
                cost=dict(self._cost),
                at=time.time(),
            )
        )

    def _next_problems(self) -> Sequence[Problem]:
        """The next batch of the training order; the place in it is part of the state."""
        start, count = self._training.problems_drawn, self._method.batch.prompts
        self._training.problems_drawn += count
        return [self._problems[index] for index in training_order(len(self._problems), self.spec.seed, start, count)]

    def _solutions_graded_wrong(self, trainer: Trainer, result: UpdateResult) -> dict[str, float | None]:
        """``solutions_graded_wrong``: share of the update's problems whose own solution their grader fails.

        A student that imitates such a solution perfectly scores nothing. Asked where the method shows or teaches
        solutions, once a problem; the first such problems are named in the log.
        """
        if not uses_solutions(self._method):
            return {}
        new = [problem for problem in result.problems if problem.id not in self._graded]
        wrong = {problem.id for problem, _ in solutions_graded_wrong(trainer.benchmark, new)}
        if wrong and not any(self._graded.values()):
            _log.warning("the grader of %s fails the solutions of %s", trainer.benchmark.name, sorted(wrong)[:5])
        self._graded |= {problem.id: problem.id in wrong for problem in new}
        failing = [self._graded[problem.id] for problem in result.problems]
        return {"solutions_graded_wrong": sum(failing) / len(failing)}

    def _finished(self) -> bool:
        budget = self.spec.budget
        if isinstance(budget, UpdatesBudget):
            return self._update >= budget.updates
        charged = "rollout_tokens" if self._method.uses_rollouts() else "reference_tokens"
        return self._cost[charged] >= budget.tokens

    # --- state ---------------------------------------------------------------------------------------------------

    def _state(self, segment: int) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "segment": segment,
            "update": self._update,
            "training": self._training.to_json(),
            "model": self._model.content_hash,
            "cost": dict(self._cost),
        }

    def _restore(self, segment: int) -> Trainer:
        """The trainer at the end of ``segment`` (0: the base model)."""
        if self._held == segment and self._trainer is not None:
            return self._trainer
        trainer = self._new_trainer()
        self._training = TrainingState.initial(self._method)
        self._update, self._cost = 0, Counter()
        if segment > 0:
            report, tensors, state = load_segment(self.run_dir, segment)
            if state["run_id"] != self.run_id or state["model"] != self._model.content_hash:
                raise CheckpointError(f"{report.checkpoint} in {self.run_dir} is of another run or base model")
            buffers = tensors.pop(BUFFERS, {})
            trainer.learner.load_state(tensors)
            self._training.load(state["training"], buffers, self._problems)
            self._update, self._cost = state["update"], Counter(state["cost"])
        self._trainer, self._held = trainer, segment
        return trainer

    def _new_trainer(self) -> Trainer:
        method = self._method
        learner = HFLearner(
            self._base,
            {name: phase.optimiser for name, phase in method.phases.items()},
            self.spec.compute,
            views_used(method.views, method.views_used()),
            end_ids=self._renderer.end_ids,
            pad_id=self._renderer.pad_id,
            adapter=method.adapter,
            seed=self.spec.seed,
            decode=self._renderer.decode,
        )
        return Trainer(
            method=method,
            learner=learner,
            renderer=self._renderer,
            language=language_of(self._model),
            benchmark=self._benchmark,
            compute=self.spec.compute,
            run_seed=self.spec.seed,
        )


def uses_solutions(method: Method) -> bool:
    """Whether a view shows solutions, or a term or controller learns from them."""
    shown = any(needs_solution(method.views[name].context) for name in method.views_used())
    taught = any(term.data == "references" or getattr(term, "labels", "own") == "references" for term in method.terms())
    return shown or taught
