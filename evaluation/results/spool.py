"""Append-only spools: how a worker process hands over its facts without a database, a lock or a server.

Each ``Spool`` owns one file, ``<run>/spool/<host>-<pid>-<start>.jsonl``. A line is ``{"v", "writer", "seq",
"attempt", "kind", "run_id", "key", "at", "pid", "role", "data"}``, where ``data`` holds the record's other fields.
A line that ``append`` returned from survives the death of the process; ``flush`` makes it survive the machine's.
Texts go to Parquet files beside the spools (``write_samples``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evaluation.results.records import COST_KEYS, Record

if TYPE_CHECKING:
    import pyarrow

LINE_VERSION = 1
"""Version of the line format; an ingestor quarantines versions it does not know."""
SPOOL_FOLDER = "spool"
COMPACTED_FOLDER = "compacted"
"""Where the spools of finished runs go (``evaluation.results.compaction``)."""
SAMPLES_FOLDER = "samples"

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SpoolWriteError(OSError):
    """The spool or a samples file could not be written (disk full, read-only, gone); nothing of it was kept."""


class Spool:
    """The one writer of one spool file. Threads may share it; a forked child must open its own.

    ``role`` says what the process does ("driver", "trainer", "evaluator"); ``attempt`` counts the tries at the run
    from 1, and of two records with one key the higher attempt wins in every view.

    ``non_finite`` counts the NaN and infinite numbers written as null so far.
    """

    def __init__(self, run_dir: Path, *, role: str, attempt: int) -> None:
        if attempt < 1:
            raise ValueError(f"attempt counts from 1, got {attempt}")
        self.role = role
        self.attempt = attempt
        self.pid = os.getpid()
        self.non_finite = 0
        self._sequence = 0
        self._lock = threading.Lock()
        self.path, self._file = _create(Path(run_dir) / SPOOL_FOLDER, self.pid)
        self.writer = self.path.stem

    def append(self, record: Record) -> None:
        """Write one record as one line.

        Raises SpoolWriteError when the line could not be written whole (it is then not there at all) and ValueError
        for a record that cannot be a line.
        """
        if os.getpid() != self.pid:
            raise RuntimeError(f"{self.path} belongs to process {self.pid}: open a Spool of your own after a fork")
        with self._lock:
            if self._file is None:
                raise ValueError(f"{self.path} is closed")
            line, non_finite = self._line(record)
            self._write(line)
            self._sequence += 1
            self.non_finite += non_finite

    def flush(self) -> None:
        """Make the lines so far survive a power loss (fsync)."""
        with self._lock:
            if self._file is not None:
                with _explained(self.path):
                    os.fsync(self._file)

    def close(self) -> None:
        """Flush and close; closing twice is harmless."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                try:
                    with _explained(self.path):
                        os.fsync(file)
                finally:
                    os.close(file)

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, record: Record) -> tuple[bytes, int]:
        data = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.name != "run_id"}
        unknown = set(data.get("cost", ())) - set(COST_KEYS)
        if unknown:
            raise ValueError(f"unknown cost {sorted(unknown)} in a {record.kind} record: the costs are {COST_KEYS}")
        line = {
            "v": LINE_VERSION,
            "writer": self.writer,
            "seq": self._sequence,
            "attempt": self.attempt,
            "kind": record.kind,
            "run_id": record.run_id,
            "key": record.key,
            "at": time.time(),
            "pid": self.pid,
            "role": self.role,
            "data": data,
        }
        text, non_finite = _dump(line, record.kind)
        return _encode(text) + b"\n", non_finite

    def _write(self, line: bytes) -> None:
        """All of ``line`` or none of it: a short write (disk full) is taken back."""
        assert self._file is not None
        with _explained(self.path):
            start = os.fstat(self._file).st_size
            written = 0
            try:
                while written < len(line):
                    written += os.write(self._file, line[written:])
            except OSError:
                os.ftruncate(self._file, start)
                raise


def _create(folder: Path, pid: int) -> tuple[Path, int | None]:
    """A new spool file that no other process, thread or earlier life of this pid shares."""
    # A host name is for people; the exclusive creation is what makes the name unique.
    host = re.sub(r"[^A-Za-z0-9.]", "-", socket.gethostname()) or "host"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            path = folder / f"{host}-{pid}-{time.time_ns()}.jsonl"
            with contextlib.suppress(FileExistsError):
                file = os.open(path, flags, 0o644)
                if _held(file):
                    break
                os.close(file)
        sync_folder(folder)
    return path, file


def _held(file: int) -> bool:
    """Lock the new file for as long as it is open, which keeps compaction away; False if it was taken away before."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without locks: compaction cannot lock there either, and refuses.
    return os.fstat(file).st_nlink > 0


@contextlib.contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolWriteError(error.errno, f"cannot write results ({error.strerror or error})", str(path)) from error


def sync_folder(folder: Path) -> None:
    """Make new names in ``folder`` survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dump(line: Mapping[str, Any], kind: str) -> tuple[str, int]:
    """JSON text of ``line`` and how many of its numbers were not finite."""
    try:
        return json.dumps(line, allow_nan=False, ensure_ascii=False, separators=(",", ":")), 0
    except (ValueError, TypeError):
        counter = [0]
        clean = _jsonable(line, kind, counter)
        return json.dumps(clean, allow_nan=False, ensure_ascii=False, separators=(",", ":")), counter[0]


def _jsonable(value: Any, where: str, counter: list[int]) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar or a zero-dimensional array
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        counter[0] += 1
        return None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item, f"{where}.{key}", counter) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item, f"{where}[{index}]", counter) for index, item in enumerate(value)]
    raise ValueError(f"{where} is a {type(value).__name__}, which has no JSON form: pass numbers, texts, lists, dicts")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as byte-level tokenizers produce
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def write_samples(run_dir: Path, kind: str, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write ``samples/<kind>-<name>.parquet`` (zstd) whole or not at all; returns the path relative to ``run_dir``.

    The name is the caller's and deterministic, so work redone after a crash replaces the file by the same content.
    Columns are the union of the rows' keys in order of first appearance; a missing key is null. Raises ValueError
    for no rows or an unsafe name, SpoolWriteError when the disk refuses.
    """
    import pyarrow as pa
    from pyarrow import parquet

    for part in (kind, name):
        if not _SAFE_NAME.fullmatch(part):
            raise ValueError(f"samples file part {part!r}: use letters, digits, '.', '_' and '-' only")
    if not rows:
        raise ValueError(f"no rows for samples file {kind}-{name}: skip the call when there is nothing to keep")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = pa.table({column: pa.array([_clean_text(row.get(column)) for row in rows]) for column in columns})

    relative = f"{SAMPLES_FOLDER}/{kind}-{name}.parquet"
    target = Path(run_dir) / relative
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{time.time_ns()}.tmp")
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                parquet.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(target.parent)
    return relative


def _clean_text(value: Any) -> Any:
    """``value`` with half surrogate pairs replaced: Parquet, like JSON, takes valid Unicode only."""
    if isinstance(value, str):
        return _encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _clean_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_text(item) for item in value]
    return value


def read_samples(run_dir: Path, sample_file: str, rows: Iterable[int] | None = None) -> pyarrow.Table:
    """The rows (all, or those at the given positions) of a samples file that a record names.

    Raises ValueError for a path that leads out of ``run_dir`` and FileNotFoundError for a file that is not there.
    """
    from pyarrow import parquet

    root = Path(run_dir).resolve()
    file = (root / sample_file).resolve()
    if not file.is_relative_to(root):
        raise ValueError(f"samples file {sample_file!r} leads out of {run_dir}")
    table = parquet.read_table(file)
    return table if rows is None else table.take(list(rows))
