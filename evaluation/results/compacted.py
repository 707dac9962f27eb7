"""Spools of a finished run as one Parquet file: every byte of them, a tenth of the size, and one name a run.

``<run>/compacted/<digest>.parquet`` has a row a line: ``spool`` (file name), ``start_byte``, ``kind`` (of the record;
null for a line that says none) and ``line`` (the bytes, without the newline). Its metadata lists the spools with their
sizes, times and checksums. Such a file is never changed: its name is a hash of what it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
from pyarrow import parquet

from evaluation.results.spool import sync_folder

READ_BYTES = 8 * 2**20
"""Bytes of a spool that are held in memory at a time; also the size of a row group."""
FORMAT_VERSION = 1

_METADATA_KEY = b"stillroom.spools"
_SCHEMA = pa.schema(
    {
        "spool": pa.dictionary(pa.int32(), pa.string()),
        "start_byte": pa.int64(),
        "kind": pa.string(),
        "line": pa.binary(),
    }
)
_KIND = re.compile(rb'"kind"\s*:\s*"([a-z_]{1,40})"')
_ENVELOPE_BYTES = 1_000
"""Where in a line its kind is sought: the envelope comes before the data."""
_SPOOL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9._-]*\.jsonl")


class CompactedError(ValueError):
    """A compacted file that cannot be read, or does not hold what it says; the message names the file."""


@dataclass(frozen=True, slots=True)
class KeptSpool:
    """One spool inside a compacted file."""

    name: str
    """File name, as it was under ``spool/``."""
    size: int
    mtime_ns: int
    sha256: str
    lines: int
    """Newlines in it."""
    first_group: int
    groups: int


class SpoolContent(Protocol):
    """A spool to be written: its name, time and bytes."""

    @property
    def name(self) -> str: ...
    @property
    def mtime_ns(self) -> int: ...
    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from ``start`` on."""
        ...


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """A compacted file that is there."""

    path: Path
    spools: tuple[KeptSpool, ...]

    @classmethod
    def open(cls, path: Path) -> CompactedFile:
        """Read what the file says it holds; raises CompactedError."""
        try:
            metadata = parquet.read_metadata(path).metadata or {}
            content = json.loads(metadata[_METADATA_KEY])
            if content["version"] != FORMAT_VERSION:
                raise CompactedError(f"{path} has format {content['version']}, this version reads {FORMAT_VERSION}")
            spools = tuple(KeptSpool(**spool) for spool in content["spools"])
        except (pa.ArrowInvalid, KeyError, TypeError, json.JSONDecodeError) as error:
            raise CompactedError(f"{path} is no compacted file of spools or is damaged ({error})") from error
        for spool in spools:
            if not _SPOOL_NAME.fullmatch(spool.name):
                raise CompactedError(f"{path} holds a spool of the unsafe name {spool.name!r}")
        return cls(path, spools)

    def blocks(self, spool: KeptSpool, start: int = 0) -> Iterator[bytes]:
        """The bytes of one spool from ``start`` on, which must be the start of a line or the spool's end."""
        try:
            with parquet.ParquetFile(self.path, page_checksum_verification=True) as file:
                for group in range(spool.first_group, spool.first_group + spool.groups):
                    rows = file.read_row_group(group, columns=["start_byte", "line"])
                    rows = rows.slice(int(rows["start_byte"].to_numpy().searchsorted(start)))
                    if rows.num_rows:
                        first = rows["start_byte"][0].as_py()
                        block = b"\n".join(rows["line"].to_pylist()) + b"\n"
                        yield block[: spool.size - first]  # the last line of a spool may have no newline
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise CompactedError(f"{self.path} is damaged ({error})") from error

    def verify(self) -> None:
        """Read every byte and compare sizes, line counts and checksums; raises CompactedError."""
        for spool in self.spools:
            size, lines, digest = 0, 0, hashlib.sha256()
            for block in self.blocks(spool):
                size += len(block)
                lines += block.count(b"\n")
                digest.update(block)
            if (size, lines, digest.hexdigest()) != (spool.size, spool.lines, spool.sha256):
                raise CompactedError(f"{self.path} does not hold {spool.name} as it says")


def write_compacted(folder: Path, spools: Sequence[SpoolContent]) -> CompactedFile:
    """Write ``spools`` as one file into ``folder``, read it back, and give it its name; nothing is removed.

    The file is there whole or not at all. Raises CompactedError when what was read back differs, OSError when the disk
    refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{os.getpid()}-{time.time_ns()}.tmp"
    try:
        with temporary.open("xb") as file:
            kept = _write(file, sorted(spools, key=lambda spool: spool.name))
            file.flush()
            os.fsync(file.fileno())
        written = CompactedFile.open(temporary)
        if written.spools != kept:
            raise CompactedError(f"{temporary} did not come back from the disk as it was written")
        written.verify()
        target = folder / f"{_digest(kept)}.parquet"
        temporary.replace(target)
        sync_folder(folder)
        sync_folder(folder.parent)
        return replace(written, path=target)
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: BinaryIO, spools: Iterable[SpoolContent]) -> tuple[KeptSpool, ...]:
    kept: list[KeptSpool] = []
    encoding: dict[str, Any] = {"compression": "zstd", "use_dictionary": ["spool", "kind"], "write_page_checksum": True}
    with parquet.ParquetWriter(file, _SCHEMA, **encoding) as writer:
        group = 0
        for spool in spools:
            size, lines, first, digest = 0, 0, group, hashlib.sha256()
            for block in _whole_lines(spool.blocks()):
                writer.write_table(_rows(spool.name, size, block), row_group_size=len(block) + 1)
                group += 1
                size += len(block)
                lines += block.count(b"\n")
                digest.update(block)
            kept.append(KeptSpool(spool.name, size, spool.mtime_ns, digest.hexdigest(), lines, first, group - first))
        content = {"version": FORMAT_VERSION, "spools": [asdict(spool) for spool in kept]}
        writer.add_key_value_metadata({_METADATA_KEY.decode(): json.dumps(content)})
    return tuple(kept)


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that end with a newline, but for what comes after the last one."""
    rest: list[bytes] = []
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, block[:end]])
            rest = []
        if end < len(block):
            rest.append(block[end:])
    if rest:
        yield b"".join(rest)


def _rows(name: str, start: int, block: bytes) -> pa.Table:
    lines = block.removesuffix(b"\n").split(b"\n")
    starts = [start]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    kinds = [found[1].decode() if (found := _KIND.search(line, 0, _ENVELOPE_BYTES)) else None for line in lines]
    columns: dict[str, Any] = {
        "spool": pa.DictionaryArray.from_arrays(pa.array([0] * len(lines), pa.int32()), pa.array([name])),
        "start_byte": pa.array(starts, pa.int64()),
        "kind": pa.array(kinds, pa.string()),
        "line": pa.array(lines, pa.binary()),
    }
    return pa.table(columns, schema=_SCHEMA)


def _digest(spools: Sequence[KeptSpool]) -> str:
    content = json.dumps([[spool.name, spool.size, spool.mtime_ns, spool.sha256] for spool in spools])
    return hashlib.sha256(content.encode()).hexdigest()[:16]
