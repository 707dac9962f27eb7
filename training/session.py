"""The segments of one run, in a worker process: from checkpoint to checkpoint, bit for bit.

A segment is the updates between two evaluations. Training draws no random number of its own: each rollout's seed is a
hash of (run seed, update, place), the order of problems is a function of the run's seed, and dropout is off. So the
state is the weights, the averages, the optimiser's moments and the update's number, and nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.data import training_order
from evaluation.problems import Problem
from evaluation.results.records import StepRecord
from evaluation.results.spool import Spool
from training.base_models import resolve_model
from training.checkpoint_evaluation import evaluate_checkpoint, evaluate_segment
from training.checkpoints import CheckpointError, SegmentReport, load_segment, save_segment, segment_report
from training.checkpoints import release as release_segment
from training.contexts.build import check_problems
from training.learners.base import views_used
from training.learners.hf import HFLearner
from training.learners.loading import fix_numerics, load_base, load_renderer
from training.method import Distill, Method
from training.recording import RolloutRecorder
from training.spec import RunSpec, UpdatesBudget
from training.update import Trainer, run_update
from training.warm import warm_sources

__all__ = ["Session", "evaluate_checkpoint", "evaluate_segment"]

ROLE = "trainer"


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
        self._phase = only_phase(spec.method)
        sources = warm_sources(spec, benchmarks_root)
        if sources.train_benchmark is None:
            raise ValueError(f"run {run_id} has no training data: set data.train")
        check_problems(spec.method, sources.train)
        self._problems = sources.train
        self._benchmark = sources.train_benchmark
        self._device = fix_numerics(spec.compute)
        self._model = resolve_model(spec.model, cache)
        self._base = load_base(self._model.path, self._model.content_hash, self._device)
        self._renderer = load_renderer(self._model, self._base, spec.model.system_prompt)
        self._spool = Spool(run_dir, role=ROLE, attempt=attempt)
        self._trainer: Trainer | None = None
        self._held: int | None = None
        self._update = 0
        self._cost: Counter[str] = Counter()

    def run_segment(self, segment: int, on_update: Callable[[StepRecord], None] | None = None) -> SegmentReport:
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
            self._one_update(trainer, segment, recorder, on_update)
        recorder.close()
        self._spool.flush()
        report = save_segment(
            self.run_dir,
            segment,
            trainer.learner.state(),
            self._state(segment),
            first_update=first,
            finished=self._finished(),
        )
        self._held = segment
        return report

    def release(self, segment: int) -> None:
        """Says that the evaluation of ``segment`` is done, so that its checkpoint may be deleted (see checkpoints)."""
        release_segment(self.run_dir, segment)

    def close(self) -> None:
        """Flushes and closes the spool."""
        self._spool.close()

    # --- one update ----------------------------------------------------------------------------------------------

    def _one_update(
        self,
        trainer: Trainer,
        segment: int,
        recorder: RolloutRecorder,
        on_update: Callable[[StepRecord], None] | None,
    ) -> None:
        update = self._update + 1
        problems = self._batch(update)
        result = run_update(trainer, update, problems)
        self._update = update
        self._cost.update(result.cost)
        recorder.add(result, problems)
        step = StepRecord(
            run_id=self.run_id,
            update=update,
            segment=segment,
            metrics=result.metrics,
            cost=dict(self._cost),
            at=time.time(),
        )
        self._spool.append(step)
        if on_update is not None:
            on_update(step)

    def _batch(self, update: int) -> list[Problem]:
        prompts = self._method.batch.prompts
        order = training_order(len(self._problems), self.spec.seed, (update - 1) * prompts, prompts)
        return [self._problems[index] for index in order]

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
            "problems_seen": self._update * self._method.batch.prompts,
            "model": self._model.content_hash,
            "cost": dict(self._cost),
        }

    def _restore(self, segment: int) -> Trainer:
        """The trainer at the end of ``segment`` (0: the base model)."""
        if self._held == segment and self._trainer is not None:
            return self._trainer
        trainer = self._new_trainer()
        self._update, self._cost = 0, Counter()
        if segment > 0:
            report, tensors, state = load_segment(self.run_dir, segment)
            if state["run_id"] != self.run_id or state["model"] != self._model.content_hash:
                raise CheckpointError(f"{report.checkpoint} in {self.run_dir} is of another run or base model")
            trainer.learner.load_state(tensors)
            self._update, self._cost = state["update"], Counter(state["cost"])
        self._trainer, self._held = trainer, segment
        return trainer

    def _new_trainer(self) -> Trainer:
        phase = self._method.phases[self._phase]
        names = {term.of for term in phase.terms.values()}
        names |= {term.against for term in phase.terms.values() if isinstance(term, Distill)}
        learner = HFLearner(
            self._base,
            phase.optimiser,
            self.spec.compute,
            views_used(self._method.views, names),
            end_ids=self._renderer.end_ids,
            pad_id=self._renderer.pad_id,
        )
        return Trainer(
            method=self._method,
            phase=self._phase,
            learner=learner,
            renderer=self._renderer,
            benchmark=self._benchmark,
            compute=self.spec.compute,
            run_seed=self.spec.seed,
        )


def only_phase(method: Method) -> str:
    """The name of the method's one phase."""
    if len(method.phases) != 1:
        raise ValueError(f"method {method.key!r} has {len(method.phases)} phases; one is what can be trained")
    return next(iter(method.phases))
