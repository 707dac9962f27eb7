"""Compaction: the spools of finished runs become one Parquet file a run, byte for byte, and then go.

Nothing is removed before the file was read back from the disk and agreed. Killed at any step, a spool is there, or the
compacted file is, or both: the ingestor's ledger knows a spool by its name wherever it lies, so each line counts once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.results.compacted import CompactedFile, KeptSpool, SpoolContent, write_compacted
from evaluation.results.sources import FileReader
from evaluation.results.spool import COMPACTED_FOLDER, SPOOL_FOLDER, sync_folder
from evaluation.results.store import Store


class CompactionError(ValueError):
    """Two copies of one spool that do not agree; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What came of compacting one run."""

    run_id: str
    spools: int
    """Spool files that went."""
    still_open: int
    """Spool files that a living process holds; they stayed."""
    bytes_before: int
    """Of the spools that went and of the compacted files they were merged with."""
    bytes_after: int


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """A spool file as the content of a compacted file."""

    path: Path
    reader: FileReader
    size: int
    mtime_ns: int

    @property
    def name(self) -> str:
        return self.path.name

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from ``start`` on."""
        return self.reader.blocks(start)


@dataclass(frozen=True, slots=True)
class CompactedSpool:
    """A spool inside a compacted file as the content of another."""

    file: CompactedFile
    spool: KeptSpool

    @property
    def name(self) -> str:
        return self.spool.name

    @property
    def size(self) -> int:
        return self.spool.size

    @property
    def mtime_ns(self) -> int:
        return self.spool.mtime_ns

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from ``start`` on."""
        return self.file.blocks(self.spool, start)


def compact(store: Path, run_id: str, *, wait: float | None = None) -> Compaction:
    """Move the run's spools, and what was compacted of it before, into one compacted file.

    Spools that a living process holds stay. The caller knows that the run is done. ``wait`` as in ``ingest``. Raises
    StoreBusyError, CompactionError, CompactedError, OSError; whatever is raised, no line is lost.
    """
    files = Store(Path(store))
    run_dir = files.runs / run_id
    with files.ingest_lock(wait), held_spools(run_dir) as (spools, still_open):
        old = [CompactedFile.open(path) for path in sorted((run_dir / COMPACTED_FOLDER).glob("*.parquet"))]
        if not spools and len(old) <= 1:
            return Compaction(run_id, 0, still_open, 0, 0)
        before = sum(spool.size for spool in spools) + sum(file.path.stat().st_size for file in old)
        for leftover in (run_dir / COMPACTED_FOLDER).glob(".*.tmp"):
            leftover.unlink()
        written = write_compacted(run_dir / COMPACTED_FOLDER, merged(spools, old))
        _remove(run_dir, [file.path for file in old if file.path != written.path], [spool.path for spool in spools])
        return Compaction(run_id, len(spools), still_open, before, written.path.stat().st_size)


def _remove(run_dir: Path, compacted: Sequence[Path], spools: Sequence[Path]) -> None:
    for path in [*compacted, *spools]:
        path.unlink()
    for folder in {path.parent for path in [*compacted, *spools]}:
        sync_folder(folder)


@contextlib.contextmanager
def held_spools(run_dir: Path) -> Generator[tuple[list[SpoolFile], int]]:
    """The run's spools that nobody writes any more, locked meanwhile, and how many are still written."""
    with contextlib.ExitStack() as stack:
        spools, busy = [], 0
        for path in sorted((run_dir / SPOOL_FOLDER).glob("*.jsonl")):
            try:
                file = stack.enter_context(path.open("r+b"))  # an exclusive lock over NFS wants a file open for writing
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy += 1
                continue
            status = path.stat()
            spools.append(SpoolFile(path, FileReader(file), status.st_size, status.st_mtime_ns))
        yield spools, busy


def merged(spools: Sequence[SpoolFile], old: Sequence[CompactedFile]) -> list[SpoolContent]:
    """Each spool once, in its longest copy; raises CompactionError where a shorter copy is not its beginning."""
    copies: dict[str, list[SpoolFile | CompactedSpool]] = {}
    for spool in [*spools, *(CompactedSpool(file, spool) for file in old for spool in file.spools)]:
        copies.setdefault(spool.name, []).append(spool)
    chosen: list[SpoolContent] = []
    for name, found in sorted(copies.items()):
        longest = max(found, key=lambda copy: copy.size)
        for copy in found:
            if copy is not longest and beginning(longest, copy.size) != beginning(copy, copy.size):
                raise CompactionError(f"two copies of {name} in {old[0].path.parent.parent} differ: move one away")
        chosen.append(longest)
    return chosen


def beginning(spool: SpoolContent, size: int) -> str:
    """Hash of the first ``size`` bytes."""
    digest, left = hashlib.sha256(), size
    for block in spool.blocks():
        digest.update(block[:left])
        left -= len(block)
        if left <= 0:
            break
    return digest.hexdigest()
