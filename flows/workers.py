"""The bodies of the Ray workers. They know a run's folder and nothing of Prefect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.session import Session


class TrainingWorker:
    """Rolls out, grades and updates: the segments of one run after another, models kept warm between runs."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def ready(self) -> int:
        return os.getpid()

    def run_segment(self, run_dir: str, segment: int, attempt: int) -> dict[str, Any]:
        """Train one segment and return its report as plain values."""
        from flows.run_folder import RunFolder
        from training.session import Session

        folder = RunFolder(Path(run_dir))
        with folder.hold("training"):
            if self._session is None or self._session.run_id != folder.run_id or self._session.attempt != attempt:
                if self._session is not None:
                    self._session.close()
                plan = folder.read()
                self._session = Session(
                    plan.spec,
                    plan.run_id,
                    folder.path,
                    cache=plan.cache,
                    benchmarks_root=plan.benchmarks_root,
                    attempt=attempt,
                )
            return self._session.run_segment(segment).to_dict()


class EvaluationWorker:
    """Answers and grades the problems of an evaluation with the weights of one checkpoint."""

    def ready(self) -> int:
        return os.getpid()

    def evaluate(self, run_dir: str, segment: int | None, attempt: int) -> dict[str, Any]:
        """Evaluate the checkpoint of ``segment`` (None: the untrained model)."""
        from flows.run_folder import RunFolder
        from training.session import evaluate_segment

        folder = RunFolder(Path(run_dir))
        plan = folder.read()
        with folder.hold("evaluation"):
            return evaluate_segment(
                plan.spec,
                plan.run_id,
                folder.path,
                segment,
                cache=plan.cache,
                benchmarks_root=plan.benchmarks_root,
                attempt=attempt,
            )


WORKERS: dict[str, type] = {"training": TrainingWorker, "evaluation": EvaluationWorker}
