"""The bodies of the Ray workers. They know a run's folder and nothing of Prefect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.identity import code_hash
from flows.run_folder import RunFolder, StoredRun

if TYPE_CHECKING:
    from training.session import Session


class ChangedContentError(ValueError):
    """Code, model or data are not those that the run's identity names."""


class _Worker:
    def __init__(self) -> None:
        # Taken before the code is loaded: what is edited later does not run here.
        self._code = code_hash()

    def ready(self) -> int:
        return os.getpid()

    def _read(self, folder: RunFolder) -> StoredRun:
        """The run, once its contents have been found to be what its identity says."""
        from training.base_models import resolve_model
        from training.warm import warm_sources

        run = folder.read()
        found = {
            "code": self._code,
            "model": resolve_model(run.spec.model, run.cache).content_hash,
            "data": warm_sources(run.spec, run.benchmarks_root).content_hash,
        }
        changed = [name for name, content in found.items() if run.identity[name] != content]
        if changed:
            raise ChangedContentError(
                f"{' and '.join(changed)} changed after {run.run_id} was planned: the same command plans it anew"
            )
        return run


class TrainingWorker(_Worker):
    """Rolls out, grades and updates: the segments of one run after another, models kept warm between runs."""

    def __init__(self) -> None:
        super().__init__()
        self._session: Session | None = None

    def run_segment(self, run_dir: str, segment: int, attempt: int) -> dict[str, Any]:
        """Train one segment and return its report as plain values."""
        folder = RunFolder(Path(run_dir))
        with folder.hold("training"):
            return self._session_of(folder, attempt).run_segment(segment).to_dict()

    def _session_of(self, folder: RunFolder, attempt: int) -> Session:
        from training.session import Session

        held = self._session
        if held is not None and (held.run_id, held.attempt) == (folder.run_id, attempt):
            return held
        if held is not None:
            held.close()
        self._session = None
        run = self._read(folder)
        self._session = Session(
            run.spec,
            run.run_id,
            folder.path,
            cache=run.cache,
            benchmarks_root=run.benchmarks_root,
            attempt=attempt,
        )
        return self._session


class EvaluationWorker(_Worker):
    """Answers and grades the problems of an evaluation with the weights of one checkpoint."""

    def evaluate(self, run_dir: str, segment: int | None, attempt: int) -> dict[str, Any]:
        """Evaluate the checkpoint of ``segment`` (None: the untrained model)."""
        from training.session import evaluate_segment

        folder = RunFolder(Path(run_dir))
        with folder.hold("evaluation"):
            run = self._read(folder)
            return evaluate_segment(
                run.spec,
                run.run_id,
                folder.path,
                segment,
                cache=run.cache,
                benchmarks_root=run.benchmarks_root,
                attempt=attempt,
            )


WORKERS: dict[str, type] = {"training": TrainingWorker, "evaluation": EvaluationWorker}
