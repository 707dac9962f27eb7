"""Segments on disk: what is done, and the state to go on from (no torch until tensors are read or written).

``segments/<n>.json`` is written last and holds the checksums of ``checkpoints/<n>/``: a segment is done iff both are
there and agree. The weights the run starts from are never saved again: they are the base model's folder.

Retention: a checkpoint is deleted once it was released (its evaluation is done), two later segments are done, and it
is not the run's last. A released segment stays done without its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.results.spool import sync_folder

if TYPE_CHECKING:
    from torch import Tensor

KEPT_CHECKPOINTS = 2
"""Latest checkpoints that stay even when released: if the last one is damaged, the one before is the way back."""

STATE_FILE = "state.json"
STUDENT_FILE = "student.safetensors"


class CheckpointError(ValueError):
    """A checkpoint that work needs is missing, released or damaged."""


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A finished segment: the updates ``first_update`` to ``last_update``, both included.

    ``finished`` says that the run's budget is spent. ``checkpoint`` is relative to the run's folder; ``cost`` is the
    run's cost so far, by the names of StepRecord.
    """

    segment: int
    first_update: int
    last_update: int
    finished: bool
    checkpoint: str
    cost: dict[str, float]
    checksums: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def segment_report(run_dir: Path, segment: int) -> SegmentReport | None:
    """The report of a segment that is done, else None (absent, or damaged so that it must be done again)."""
    report = read_report(run_dir, segment)
    if report is None:
        return None
    folder = run_dir / report.checkpoint
    if not folder.exists():
        return report if _released_file(run_dir, segment).exists() else None
    found = {name: _sha256(folder / name) for name in report.checksums if (folder / name).is_file()}
    return report if found == report.checksums else None


def save_segment(
    run_dir: Path,
    segment: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    *,
    first_update: int,
    finished: bool,
) -> SegmentReport:
    """Writes the checkpoint (temporary folder, fsync, rename) and then the report that makes the segment done.

    ``tensors`` are saved as ``<name>.safetensors``; ``state`` needs ``update`` and ``cost``.
    """
    relative = f"checkpoints/{segment:05d}"
    target = run_dir / relative
    for left_over in target.parent.glob(".*"):  # of processes that died here; one process trains a run at a time
        shutil.rmtree(left_over, ignore_errors=True)
    temporary = target.with_name(f".{target.name}.unfinished")
    temporary.mkdir(parents=True)
    _write_checkpoint(temporary, tensors, state)
    checksums = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
    if target.exists():  # left by a death between the rename and the report, or damaged
        _delete(target)
    temporary.replace(target)
    sync_folder(target.parent)
    report = SegmentReport(
        segment=segment,
        first_update=first_update,
        last_update=state["update"],
        finished=finished,
        checkpoint=relative,
        cost=dict(state["cost"]),
        checksums=checksums,
    )
    write_json(_segment_file(run_dir, segment), report.to_dict())
    return report


def load_segment(run_dir: Path, segment: int) -> tuple[SegmentReport, dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Report, tensors by file stem, and state of a done segment. Raises CheckpointError saying what is wrong."""
    from safetensors.torch import load_file

    report = segment_report(run_dir, segment)
    if report is None:
        raise CheckpointError(f"segment {segment} of {run_dir} is not done or its checkpoint is damaged: run it again")
    folder = run_dir / report.checkpoint
    if not folder.exists():
        raise CheckpointError(f"the checkpoint of segment {segment} of {run_dir} was released and is gone")
    tensors = {file.stem: load_file(file) for file in sorted(folder.glob("*.safetensors"))}
    return report, tensors, json.loads((folder / STATE_FILE).read_text())


def release(run_dir: Path, segment: int) -> list[int]:
    """Says that nothing needs the checkpoint of ``segment`` any more; returns the segments deleted by now.

    Deletes every released checkpoint that is neither among the last KEPT_CHECKPOINTS nor the run's final one.
    """
    _released_file(run_dir, segment).touch()
    done = sorted(int(file.stem) for file in (run_dir / "segments").glob("*.json"))
    deleted = []
    for number in done[:-KEPT_CHECKPOINTS]:
        report = read_report(run_dir, number)
        if report is None or report.finished or not _released_file(run_dir, number).exists():
            continue
        folder = run_dir / report.checkpoint
        if folder.exists():
            _delete(folder)
            deleted.append(number)
    return deleted


def read_report(run_dir: Path, segment: int) -> SegmentReport | None:
    """What the report says, whether or not the checkpoint agrees."""
    try:
        return SegmentReport(**json.loads(_segment_file(run_dir, segment).read_text()))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None


def _delete(folder: Path) -> None:
    # Renamed first: a folder under its own name is whole or absent, whenever the process dies.
    gone = folder.with_name(f".{folder.name}.{time.time_ns()}.gone")
    folder.replace(gone)
    shutil.rmtree(gone, ignore_errors=True)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Writes atomically and durably: a reader finds the old file or the whole new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    _write_text(temporary, json.dumps(content, indent=1, sort_keys=True))
    temporary.replace(file)
    sync_folder(file.parent)


def _write_checkpoint(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    for name, named in tensors.items():
        file = folder / f"{name}.safetensors"
        save_file({key: tensor.contiguous() for key, tensor in named.items()}, file)
        with file.open("rb") as written:
            os.fsync(written.fileno())
    _write_text(folder / STATE_FILE, json.dumps(state, indent=1, sort_keys=True))
    sync_folder(folder)


def _write_text(file: Path, text: str) -> None:
    with file.open("w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())


def _segment_file(run_dir: Path, segment: int) -> Path:
    return run_dir / "segments" / f"{segment}.json"


def _released_file(run_dir: Path, segment: int) -> Path:
    return run_dir / "segments" / f"{segment}.released"


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
