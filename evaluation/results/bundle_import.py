"""Taking in a bundle: everything is checked before anything is written, and each fact counts once however often.

The files of a run are moved into place one by one, its facts last. Killed in between, the import can be repeated: what
is there already is recognised by its content.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

from evaluation.results.bundle import (
    CODE_FOLDER,
    BundledFile,
    BundleError,
    BundleReader,
    copy_checked,
    file_sha256,
    open_bundle,
)
from evaluation.results.compacted import CompactedError, CompactedFile
from evaluation.results.compaction import CompactedSpool, SpoolFile, beginning
from evaluation.results.locks import hold, is_held
from evaluation.results.sources import FileReader
from evaluation.results.spool import COMPACTED_FOLDER, SAMPLES_FOLDER, SPOOL_FOLDER, sync_folder
from evaluation.results.store import Store

IMPORTS_FOLDER = "imports"
"""Where an import keeps files until all of them are checked."""
SPEC_FILE = "spec.json"
LOCK_FILE = ".lock"
"""Held by the import that an entry of IMPORTS_FOLDER belongs to."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What one import did."""

    runs: tuple[str, ...]
    """Runs of the bundle."""
    new_runs: tuple[str, ...]
    """Those that were not in the store."""
    files: int
    """Files written; 0 when everything was here already."""
    bytes: int


def import_bundle(store: Path, bundle: Path) -> ImportReport:
    """Take a bundle's runs into the store; the caller ingests afterwards.

    Raises BundleError, before anything of the store is changed, for a bundle that is damaged, unsafe, or holds other
    facts or texts under names that are here already; OSError when the disk refuses.
    """
    files = Store(Path(store))
    with open_bundle(Path(bundle)) as (reader, manifest):
        wanted = {
            name: file for name, file in manifest.files.items() if name.split("/")[0] in ("runs", "plans", CODE_FOLDER)
        }
        for name in manifest.files.keys() - wanted.keys():
            copy_checked(reader, name, manifest.files[name], None)
        with _staging(files) as staged:
            _stage(reader, wanted, staged)
            runs = sorted({name.split("/")[1] for name in wanted if name.startswith("runs/")})
            new = [run for run in runs if not (files.runs / run / SPEC_FILE).exists()]
            moves = [name for name in sorted(wanted, key=_order) if _is_needed(files, staged, name, wanted[name], new)]
            for name in moves:
                _move(staged / name, files.path / name)
    return ImportReport(tuple(runs), tuple(new), len(moves), sum(wanted[name].bytes for name in moves))


@contextlib.contextmanager
def _staging(files: Store) -> Generator[Path]:
    """A folder of this import alone; those of imports that died are cleared away."""
    folder = files.path / IMPORTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{os.getpid()}-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        with hold(files.path / "imports.lock"):  # nobody clears a folder away that is being made
            own.mkdir()
            stack.callback(shutil.rmtree, own, ignore_errors=True)
            stack.enter_context(hold(own / LOCK_FILE))
            for other in folder.iterdir():
                if other != own and not is_held(other / LOCK_FILE):
                    shutil.rmtree(other, ignore_errors=True)
        yield own


def _stage(reader: BundleReader, wanted: dict[str, BundledFile], staged: Path) -> None:
    """Copy and check every file; facts must be those of the run that they lie with."""
    for name, file in wanted.items():
        copy_checked(reader, name, file, staged / name)
        parts = name.split("/")
        if parts[0] == "runs" and parts[2] == COMPACTED_FOLDER:
            _check_facts(staged / name, name, parts[1], reader.path)


def _check_facts(path: Path, name: str, run: str, bundle: Path) -> None:
    try:
        file = CompactedFile.open(path)
        file.verify()
        strangers = {other for spool in file.spools for block in file.blocks(spool) for other in _run_ids(block)} - {
            run
        }
    except CompactedError as error:
        raise BundleError(f"{name} in {bundle}: {error}") from error
    if strangers:
        raise BundleError(
            f"{name} in {bundle} holds facts of another run, {sorted(strangers)[0]!r}: nothing was imported"
        )


def _run_ids(block: bytes) -> Iterable[str]:
    for line in block.splitlines():
        try:
            yield str(json.loads(line)["run_id"])
        except (ValueError, KeyError, TypeError):
            continue  # no fact: the ingestor will put it into quarantine


def _order(name: str) -> tuple[str, int, str]:
    """Run by run: the texts and the rest first, what makes the run known last."""
    parts = name.split("/")
    last = 0
    if parts[0] == "runs":
        last = 2 if parts[2] == COMPACTED_FOLDER else 1 if parts[2:] == [SPEC_FILE] else 0
    return "/".join(parts[:2]), last, name


def _is_needed(files: Store, staged: Path, name: str, file: BundledFile, new: list[str]) -> bool:
    """Whether the file has to be moved into the store; raises BundleError where it contradicts what is there."""
    target = files.path / name
    parts = name.split("/")
    if parts[0] != "runs":
        return not target.exists()
    run = parts[1]
    if parts[2] == COMPACTED_FOLDER:
        return not target.exists() and _says_more(files.runs / run, CompactedFile.open(staged / name))
    if not target.exists():
        # Of a run that is here, its own folder says how far it is.
        return run in new or parts[2] == SAMPLES_FOLDER
    if (parts[2] == SAMPLES_FOLDER or run in new) and file_sha256(target) != file.sha256:
        raise BundleError(
            f"{name} is in {files.path} with another content: the run was made here too; import into another store"
        )
    return False


def _says_more(run_dir: Path, file: CompactedFile) -> bool:
    """Whether a spool of ``file`` is not in the run's folder, or is longer than there."""
    present: dict[str, list[SpoolFile | CompactedSpool]] = {}
    for path in (run_dir / COMPACTED_FOLDER).glob("*.parquet"):
        old = CompactedFile.open(path)
        for spool in old.spools:
            present.setdefault(spool.name, []).append(CompactedSpool(old, spool))
    more = False
    for kept in file.spools:
        spool = CompactedSpool(file, kept)
        with contextlib.ExitStack() as stack:
            copies = [*present.get(kept.name, []), *_spool_file(run_dir / SPOOL_FOLDER / kept.name, stack)]
            for copy in copies:
                shared = min(copy.size, kept.size)
                if beginning(copy, shared) != beginning(spool, shared):
                    raise BundleError(f"spool {kept.name} in {run_dir} has another content: import into another store")
            more |= not copies or max(copy.size for copy in copies) < kept.size
    return more


def _spool_file(path: Path, stack: contextlib.ExitStack) -> list[SpoolFile]:
    """The spool as it is now, if it is there; ``stack`` closes it."""
    try:
        file = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return []
    status = os.fstat(file.fileno())
    return [SpoolFile(path, FileReader(file, status.st_size), status.st_size, status.st_mtime_ns)]


def _move(source: Path, target: Path) -> None:
    new = [parent for parent in target.parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
    sync_folder(target.parent)
    for folder in new:
        sync_folder(folder.parent)
