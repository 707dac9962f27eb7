"""Writing a bundle of runs: their facts, texts, specifications and environment, for another machine or a paper."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol, cast

from evaluation.results.bundle import MANIFEST, RUN_FOLDERS, BundledFile, BundleError, Manifest, blocks, check_name
from evaluation.results.compacted import CompactedFile, write_compacted
from evaluation.results.compaction import SpoolFile, merged
from evaluation.results.sources import FileReader
from evaluation.results.spool import COMPACTED_FOLDER, SAMPLES_FOLDER, SPOOL_FOLDER, sync_folder
from evaluation.results.store import Store

ZIP_SUFFIX = ".zip"


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What was written."""

    path: Path
    runs: int
    files: int
    bytes: int


class _Sink(Protocol):
    def add(self, name: str, content: IO[bytes]) -> None: ...


@dataclass(slots=True)
class _Writer:
    """Adds files to a sink and remembers their sizes and checksums."""

    sink: _Sink
    where: Path
    files: dict[str, BundledFile] = field(default_factory=dict)

    def add(self, name: str, content: IO[bytes]) -> None:
        check_name(name, self.where)
        counted = _Counted(content)
        self.sink.add(name, cast(IO[bytes], counted))
        self.files[name] = BundledFile(counted.size, counted.digest.hexdigest())

    def add_file(self, name: str, path: Path) -> None:
        with path.open("rb") as content:
            self.add(name, content)

    def add_text(self, name: str, text: str) -> None:
        self.add(name, io.BytesIO(text.encode()))


class _Counted(io.RawIOBase):
    """Passes reads on and keeps size and checksum of what went through."""

    def __init__(self, source: IO[bytes]) -> None:
        self.source = source
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        block = self.source.read(size)
        self.size += len(block)
        self.digest.update(block)
        return block


@dataclass(frozen=True, slots=True)
class _FolderSink:
    root: Path

    def add(self, name: str, content: IO[bytes]) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for block in blocks(content):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _ZipSink:
    archive: zipfile.ZipFile

    def add(self, name: str, content: IO[bytes]) -> None:
        # Parquet is compressed already; a fixed date keeps the same runs the same bytes.
        member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        with self.archive.open(member, "w", force_zip64=True) as file:
            for block in blocks(content):
                file.write(block)


def export_bundle(
    store: Path,
    runs: Mapping[str, Mapping[str, Any]],
    target: Path,
    *,
    version: str,
    plans: Sequence[str] = (),
    patches: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    samples: bool = True,
) -> BundleReport:
    """Write the runs (id -> what the README says of each) to ``target``, a zip file by its suffix or else a folder.

    ``patches`` are files of the store's ``code`` folder; ``environment`` holds texts by file name. The bundle appears
    under its name when it is whole. Raises BundleError for a target that exists and a run that is not there, OSError
    when the disk refuses.
    """
    files = Store(Path(store))
    if target.exists() or target.is_symlink():
        raise BundleError(f"{target} exists: name another file or folder, or remove it first")
    missing = [run for run in runs if not (files.runs / run).is_dir()]
    if missing:
        raise BundleError(f"the folder of run {missing[0]} is not in {files.runs}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _sink(target) as sink:
        writer = _Writer(sink, target)
        for run in runs:
            _add_run(writer, files, run, samples)
        for plan in plans:
            if (files.path / "plans" / f"{plan}.json").is_file():
                writer.add_file(f"plans/{plan}.json", files.path / "plans" / f"{plan}.json")
        for patch in dict.fromkeys(patches):
            if (files.path / patch).is_file():
                writer.add_file(patch, files.path / patch)
        for name, text in (environment or {}).items():
            writer.add_text(f"environment/{name}", text)
        writer.add_text("README.md", _readme(version, runs, plans, writer.files))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        listed = {run: dict(said) for run, said in runs.items()}
        manifest = Manifest(version, created, listed, tuple(plans), writer.files)
        sink.add(MANIFEST, io.BytesIO(manifest.to_json().encode()))
    return BundleReport(target, len(runs), len(writer.files), sum(file.bytes for file in writer.files.values()))


@contextlib.contextmanager
def _sink(target: Path) -> Generator[_Sink]:
    """Takes files; under its own name the bundle is whole or absent."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{time.time_ns()}.tmp")
    try:
        if target.suffix == ZIP_SUFFIX:
            with temporary.open("xb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    yield _ZipSink(archive)
                file.flush()
                os.fsync(file.fileno())
        else:
            temporary.mkdir()
            yield _FolderSink(temporary)
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


def _add_run(writer: _Writer, files: Store, run: str, samples: bool) -> None:
    run_dir = files.runs / run
    with tempfile.TemporaryDirectory(prefix="bundle-") as folder:
        facts = _facts(files, run_dir, Path(folder) / COMPACTED_FOLDER)
        writer.add_file(f"runs/{run}/{COMPACTED_FOLDER}/{facts.path.name}", facts.path)
    for path in _run_files(run_dir):
        if samples or path.relative_to(run_dir).parts[0] != SAMPLES_FOLDER:
            writer.add_file(f"runs/{run}/{path.relative_to(run_dir).as_posix()}", path)


def _facts(files: Store, run_dir: Path, folder: Path) -> CompactedFile:
    """All spools of the run as one compacted file, those still written as far as they are."""
    with files.ingest_lock(), contextlib.ExitStack() as stack:  # the lock keeps compaction away
        spools = []
        for path in sorted((run_dir / SPOOL_FOLDER).glob("*.jsonl")):
            file = stack.enter_context(path.open("rb"))
            status = os.fstat(file.fileno())
            spools.append(SpoolFile(path, FileReader(file, status.st_size), status.st_size, status.st_mtime_ns))
        old = [CompactedFile.open(path) for path in sorted((run_dir / COMPACTED_FOLDER).glob("*.parquet"))]
        return write_compacted(folder, merged(spools, old))


def _run_files(run_dir: Path) -> Iterable[Path]:
    """What of a run's folder goes along, in a fixed order: no checkpoints, locks, leftovers or links."""
    taken = tuple(name for name in RUN_FOLDERS if name != COMPACTED_FOLDER)
    for path in sorted(run_dir.rglob("*")):
        parts = path.relative_to(run_dir).parts
        if path.is_symlink() or not path.is_file() or any(part.startswith(".") for part in parts):
            continue
        if (len(parts) == 1 and path.suffix == ".json") or (len(parts) > 1 and parts[0] in taken):
            yield path


def _readme(
    version: str, runs: Mapping[str, Mapping[str, Any]], plans: Sequence[str], files: Mapping[str, BundledFile]
) -> str:
    said = list(dict.fromkeys(key for run in runs.values() for key in run))
    rows = [f"| `{run}` | {' | '.join(str(what.get(key, '')) for key in said)} |" for run, what in runs.items()]
    size = sum(file.bytes for file in files.values())
    of_plans = " of " + ", ".join(plans) if plans else ""
    return "\n".join(
        [
            "# Results of Stillroom",
            "",
            f"{len(runs)} runs{of_plans}, {len(files)} files, {size:,} bytes. Written by Stillroom {version}.",
            "",
            "Take them into a store, where every table and page shows them as where they were made:",
            "",
            "```",
            "stillroom import BUNDLE --store STORE",
            *(f"stillroom compare {plan} --store STORE" for plan in plans),
            "```",
            "",
            "* `runs/<run>/compacted/*.parquet`: every fact, one a row, as JSON; any Parquet reader opens it.",
            "* `runs/<run>/samples/*.parquet`: prompts, answers and tokens.",
            "* `runs/<run>/spec.json`: all settings.",
            "* `environment/`: packages, code versions and machines that made them; `code/`: uncommitted changes.",
            f"* `{MANIFEST}`: size and SHA-256 of every file. The import checks them all before it writes anything.",
            "",
            f"| run | {' | '.join(said)} |",
            f"|---|{'---|' * len(said)}",
            *rows,
            "",
        ]
    )
