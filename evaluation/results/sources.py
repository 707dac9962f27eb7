"""Where the ingestor reads spools from: files that are appended to, and compacted files that hold finished ones."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from evaluation.results.compacted import READ_BYTES, CompactedFile, KeptSpool
from evaluation.results.spool import SPOOL_FOLDER

FINGERPRINT_BYTES = 1024


class SpoolReader(Protocol):
    """An open spool."""

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from ``start`` on, which is the start of a line or the end."""
        ...

    def fingerprint(self, consumed: int) -> str:
        """Hash of the first and the last bytes before ``consumed``: a replaced file almost surely differs there."""
        ...


class SpoolSource(Protocol):
    """One spool, wherever it lies."""

    @property
    def name(self) -> str:
        """``runs/<run>/spool/<file>``: where it is or was, relative to the store."""
        ...

    @property
    def is_final(self) -> bool:
        """Whether nothing will be added to it in this place."""
        ...

    def status(self) -> tuple[int, int]:
        """Size and mtime in ns. Raises FileNotFoundError."""
        ...

    def opened(self) -> contextlib.AbstractContextManager[SpoolReader]:
        """Raises FileNotFoundError, and CompactedError for a damaged file."""
        ...


@dataclass(frozen=True, slots=True)
class FileReader:
    """A spool file that is open; each read starts where it is told and ends at ``size``, where one is given."""

    file: BinaryIO
    size: int | None = None

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """See SpoolReader."""
        position = start
        while True:
            self.file.seek(position)
            block = self.file.read(READ_BYTES if self.size is None else max(0, min(READ_BYTES, self.size - position)))
            if not block:
                return
            position += len(block)
            yield block

    def fingerprint(self, consumed: int) -> str:
        """See SpoolReader."""
        self.file.seek(0)
        head = self.file.read(min(consumed, FINGERPRINT_BYTES))
        self.file.seek(max(0, consumed - FINGERPRINT_BYTES))
        return hash_ends(head, self.file.read(min(consumed, FINGERPRINT_BYTES)))


@dataclass(frozen=True, slots=True)
class FileSource:
    """A spool file."""

    path: Path
    store: Path
    is_final = False

    @property
    def name(self) -> str:
        return self.path.relative_to(self.store).as_posix()

    def status(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    @contextlib.contextmanager
    def opened(self) -> Generator[SpoolReader]:
        with self.path.open("rb") as file:
            yield FileReader(file)


@dataclass(frozen=True, slots=True)
class CompactedSource:
    """A spool inside a compacted file."""

    file: CompactedFile
    spool: KeptSpool
    store: Path
    is_final = True

    @property
    def name(self) -> str:
        run = self.file.path.parent.parent
        return (run / SPOOL_FOLDER / self.spool.name).relative_to(self.store).as_posix()

    def status(self) -> tuple[int, int]:
        return self.spool.size, self.spool.mtime_ns

    @contextlib.contextmanager
    def opened(self) -> Generator[SpoolReader]:
        yield self

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """See SpoolReader."""
        return self.file.blocks(self.spool, start)

    def fingerprint(self, consumed: int) -> str:
        """See SpoolReader."""
        head, tail, position = b"", b"", 0
        for block in self.file.blocks(self.spool):
            block = block[: consumed - position]
            position += len(block)
            head = (head + block)[:FINGERPRINT_BYTES] if len(head) < FINGERPRINT_BYTES else head
            tail = (tail + block)[-FINGERPRINT_BYTES:]
            if position >= consumed:
                break
        return hash_ends(head, tail)


def hash_ends(head: bytes, tail: bytes) -> str:
    """What the ledger keeps of a spool's first and last bytes."""
    return hashlib.sha256(head + b"|" + tail).hexdigest()[:32]
