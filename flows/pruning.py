"""What of a store may go: nothing that a table, a resumed run or a rebuilt database needs.

Facts never go, nor the last checkpoint of a run, nor any checkpoint of a run that is not done.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.results.bundle_import import IMPORTS_FOLDER, LOCK_FILE
from evaluation.results.locks import is_held
from evaluation.results.snapshot import old_snapshots
from evaluation.results.spool import SAMPLES_FOLDER
from evaluation.results.store import Store
from flows.run_folder import RunFolder
from flows.server import DATABASE_LOCK
from training.checkpoints import read_report

QUIET_SECONDS = 3600.0
"""A leftover this old belongs to no process that still works on it."""
RAY_PREFIX = "still-"
"""How the temporary folders of private Ray clusters begin (``flows.cluster``)."""


@dataclass(frozen=True, slots=True)
class Waste:
    """Something that may be removed."""

    kind: str
    path: Path
    bytes: int
    why: str


def find_waste(store: Path, archived: Sequence[str], kinds: Sequence[str]) -> list[Waste]:
    """What may go, of ``kinds`` (names in KINDS); ``archived`` are the runs whose texts may go."""
    found = [waste for kind in kinds for waste in KINDS[kind](store, archived)]
    return sorted(found, key=lambda waste: (list(KINDS).index(waste.kind), str(waste.path)))


def remove(store: Path, waste: Waste) -> bool:
    """Remove it; False if it is in use by now. Raises OSError."""
    run = _run_of(store, waste.path)
    if run is not None and run.is_held("run"):
        return False
    if waste.kind in ("prefect", "logs") and _is_serving(store):
        return False
    if waste.path.is_dir():
        # Renamed first: a folder under its own name is whole or absent, whenever we die.
        gone = waste.path.with_name(f".{waste.path.name}.{time.time_ns()}.gone")
        waste.path.replace(gone)
        shutil.rmtree(gone)
    else:
        waste.path.unlink(missing_ok=True)
    return True


def _run_of(store: Path, path: Path) -> RunFolder | None:
    parts = path.relative_to(store).parts if path.is_relative_to(store) else ()
    return RunFolder(store / "runs" / parts[1]) if len(parts) > 2 and parts[0] == "runs" else None


def _runs(store: Path) -> Iterator[RunFolder]:
    for path in sorted((store / "runs").glob("*")):
        if path.is_dir():
            yield RunFolder(path)


def _checkpoints(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    """Checkpoints of done runs that were released, but the last; and what damage put aside."""
    for run in _runs(store):
        if not run.finished() or run.is_held("run"):
            continue
        numbers = sorted(int(file.stem) for file in (run.path / "segments").glob("*.json"))
        for number in numbers[:-1]:
            report = read_report(run.path, number)
            released = (run.path / "segments" / f"{number}.released").exists()
            if report is not None and released and not report.finished and (run.path / report.checkpoint).is_dir():
                yield _waste("checkpoints", run.path / report.checkpoint, "the run is done and has a later one")
        for path in sorted(run.path.glob("*-damaged-*")):
            yield _waste("checkpoints", path, "damaged, and the run is done without it")


def _snapshots(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    for path in old_snapshots(Store(store)):
        yield _waste("snapshots", path, "a newer snapshot is published")


def _samples(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    """Texts of archived runs that are done; their scores and verdicts stay."""
    for name in archived:
        run = RunFolder(store / "runs" / name)
        if run.finished() and (run.path / SAMPLES_FOLDER).is_dir():
            yield _waste("samples", run.path / SAMPLES_FOLDER, "the run is archived; its scores stay")


def _is_serving(store: Path) -> bool:
    """Whether a study runs that uses the store's Prefect database and logs."""
    return is_held(store / "logs" / DATABASE_LOCK)


def _prefect(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    if (store / "prefect").is_dir() and not _is_serving(store):
        yield _waste("prefect", store / "prefect", "no study runs; Prefect's history is not the truth of any run")


def _logs(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    if _is_serving(store):
        return
    for path in sorted((store / "logs").glob("*")):
        if path.is_file() and path.suffix != ".lock" and path.stat().st_size:
            yield _waste("logs", path, "no study runs")


def _leftovers(store: Path, archived: Sequence[str]) -> Iterator[Waste]:
    """Half-written files of processes that died, unfinished imports, and folders of Ray clusters that are gone."""
    for path in sorted([*store.glob("runs/*/*/.*"), *store.glob("runs/*/.*")]):
        if path.suffix in (".tmp", ".gone", ".unfinished") and _is_quiet(path):
            yield _waste("leftovers", path, "of a process that died")
    for path in sorted((store / IMPORTS_FOLDER).glob("*")):
        if path.is_dir() and not is_held(path / LOCK_FILE) and _is_quiet(path):
            yield _waste("leftovers", path, "of an import that died: repeat it")
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{RAY_PREFIX}*")):
        if _is_ray_folder(path) and _is_quiet(path) and not _is_named_by_a_process(path):
            yield _waste("leftovers", path, "of a Ray cluster that is gone")


def _is_quiet(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > QUIET_SECONDS
    except FileNotFoundError:
        return False


def _is_ray_folder(path: Path) -> bool:
    """A folder of ours that holds sessions of Ray and nothing else."""
    if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
        return False
    children = list(path.iterdir())
    return bool(children) and all(
        re.fullmatch(r"\d+", child.name) and any(child.glob("session_*")) for child in children
    )


def _is_named_by_a_process(path: Path) -> bool:
    """Whether a living process has the folder in its command line, as Ray's daemons and the guardian have."""
    import psutil

    for process in psutil.process_iter():
        try:
            if any(str(path) in word for word in process.cmdline()):
                return True
        except psutil.AccessDenied:
            continue
        except psutil.NoSuchProcess:
            continue
    return False


def _waste(kind: str, path: Path, why: str) -> Waste:
    return Waste(kind, path, size_of(path), why)


def size_of(path: Path) -> int:
    """Bytes of a file or of all files in a folder; links count for themselves."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size_of(child) for child in path.iterdir())


KINDS: dict[str, Callable[[Path, Sequence[str]], Iterator[Waste]]] = {
    "checkpoints": _checkpoints,
    "samples": _samples,
    "snapshots": _snapshots,
    "prefect": _prefect,
    "logs": _logs,
    "leftovers": _leftovers,
}
"""What can be pruned, in the order in which it is listed."""
