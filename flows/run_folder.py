"""A run's folder: the truth of its progress. Prefect's and Ray's states are never read for it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.results import locks
from flows.errors import UsageError
from training.checkpoints import SegmentReport, read_report, release, segment_report, write_json
from training.spec import RunSpec


class RunFolderError(UsageError):
    """The folder belongs to another run, or is damaged."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What ``spec.json`` says."""

    run_id: str
    spec: RunSpec
    identity: dict[str, str]
    cache: Path
    benchmarks_root: Path | None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``store/runs/<run_id>``."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.json"

    def create(self, run: StoredRun) -> None:
        """Write ``spec.json``; refuse a folder that holds another run. A moved model or data file is followed."""
        content = {
            "run_id": run.run_id,
            "spec": run.spec.canonical(),
            "identity": run.identity,
            "cache": str(run.cache),
            "benchmarks_root": str(run.benchmarks_root) if run.benchmarks_root else None,
        }
        if self.spec_file.exists():
            present = self._read_json(self.spec_file)
            for part in ("run_id", "identity"):
                if present.get(part) != content[part]:
                    raise RunFolderError(
                        f"{self.path} holds another run ({part} differs): move the folder away or use another store"
                    )
            if present == content:
                return
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.spec_file, content)

    def read(self) -> StoredRun:
        content = self._read_json(self.spec_file)
        root = content["benchmarks_root"]
        return StoredRun(
            run_id=content["run_id"],
            spec=RunSpec.model_validate(content["spec"]),
            identity=content["identity"],
            cache=Path(content["cache"]),
            benchmarks_root=Path(root) if root else None,
        )

    def _read_json(self, file: Path) -> dict[str, Any]:
        try:
            return json.loads(file.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise RunFolderError(f"{file} cannot be read ({error}): move the folder {self.path} away") from error

    # --- attempts and locks --------------------------------------------------------------------------------------

    def start_attempt(self) -> int:
        """Number of this try at the run, counted from 1; facts of later tries supersede those of earlier ones."""
        folder = self.path / "attempts"
        folder.mkdir(exist_ok=True)
        number = 1 + max((int(file.stem) for file in folder.glob("*.json")), default=0)
        who = {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}
        write_json(folder / f"{number}.json", who)
        return number

    @contextlib.contextmanager
    def hold(self, purpose: str, give_up: Callable[[], None] = lambda: None) -> Generator[None]:
        """Wait for and hold the run's lock for ``purpose``; the kernel frees it when the process dies.

        ``give_up`` is asked while waiting and may raise.
        """
        with locks.hold(self._lock(purpose), give_up):
            yield

    def is_held(self, purpose: str) -> bool:
        """Whether a living process holds the lock."""
        return locks.is_held(self._lock(purpose))

    def _lock(self, purpose: str) -> Path:
        return self.path / f"{purpose}.lock"

    # --- progress ------------------------------------------------------------------------------------------------

    def last_intact_segment(self) -> int:
        """The latest segment whose checkpoint can be gone on from; 0 if there is none.

        Checkpoints before it are only kept in case it gets damaged: what happened to them does not matter.
        """
        numbers = sorted((int(file.stem) for file in (self.path / "segments").glob("*.json")), reverse=True)
        return next((number for number in numbers if self.has_checkpoint(number)), 0)

    def has_checkpoint(self, segment: int) -> bool:
        """Whether the segment's checkpoint is there and agrees with its checksums."""
        report = self.segment_report(segment)
        return report is not None and (self.path / report.checkpoint).exists()

    def restart(self, attempt: int) -> None:
        """Put segments aside that nothing can be gone on from: both kept checkpoints are damaged. Facts stay."""
        for name in ("segments", "checkpoints"):
            if (self.path / name).exists():
                (self.path / name).rename(self.path / f"{name}-damaged-{attempt}")

    def recorded_segment(self, segment: int) -> SegmentReport | None:
        """What was written of a segment that was done once, whatever became of its checkpoint."""
        return read_report(self.path, segment)

    def segment_report(self, segment: int) -> SegmentReport | None:
        """The report of a segment that is done; None if there is work to do."""
        return segment_report(self.path, segment)

    def release(self, segment: int) -> None:
        """Say that nothing needs the segment's checkpoint any more."""
        release(self.path, segment)

    def evaluated(self, update: int) -> bool:
        return (self.path / "evaluations" / f"{update}.json").exists()

    @property
    def finished_file(self) -> Path:
        return self.path / "finished.json"

    def finished(self) -> bool:
        return self.finished_file.exists()

    def finish(self, summary: dict[str, Any]) -> None:
        write_json(self.finished_file, summary)
