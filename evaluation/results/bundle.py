"""Bundles: runs of a store as one folder or zip file that another machine can take in, with a checksum for every file.

A bundle has the layout of a store: ``runs/<run>/compacted/*.parquet`` (the facts), ``runs/<run>/samples/*.parquet``
(the texts), ``runs/<run>/spec.json`` and what else the run's folder says of its progress, ``plans/*.json``,
``code/*.patch``, ``environment/*``, ``README.md``, and ``manifest.json``, which lists the rest. No checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
BLOCK_BYTES = 2**20
RUN_FOLDERS = ("compacted", "samples", "segments", "evaluations", "attempts")
"""Folders of a run that a bundle may hold."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+=,@ -]*")
CODE_FOLDER = "code"
"""Patches of working trees, by hash, as the store keeps them."""
_TOP = ("runs", "plans", CODE_FOLDER, "environment", "README.md")


class BundleError(ValueError):
    """A bundle that cannot be written, or is damaged, unsafe or at odds with the store; names the file."""


@dataclass(frozen=True, slots=True)
class BundledFile:
    """Size and checksum of one file of a bundle."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``manifest.json`` says."""

    version: str
    """Of Stillroom."""
    created_at: str
    runs: dict[str, dict[str, Any]]
    plans: tuple[str, ...]
    files: dict[str, BundledFile]

    def to_json(self) -> str:
        content = {
            "format": FORMAT_VERSION,
            "stillroom": self.version,
            "created_at": self.created_at,
            "plans": list(self.plans),
            "runs": self.runs,
            "files": {name: [file.bytes, file.sha256] for name, file in sorted(self.files.items())},
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: bytes, where: Path) -> Manifest:
        """Raises BundleError for anything but a manifest of this format with safe paths."""
        try:
            content = json.loads(text)
            if content["format"] != FORMAT_VERSION:
                raise BundleError(f"{where} has bundle format {content['format']}, this version reads {FORMAT_VERSION}")
            files = {str(name): BundledFile(int(size), str(sha)) for name, (size, sha) in content["files"].items()}
            manifest = cls(
                content["stillroom"],
                content["created_at"],
                dict(content["runs"]),
                tuple(content["plans"]),
                files,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, BundleError):
                raise
            raise BundleError(f"{where}: {MANIFEST} is no manifest of a bundle ({error})") from error
        for name in files:
            check_name(name, where)
        return manifest


def check_name(name: str, where: Path) -> None:
    """Refuse a path that leads elsewhere or is not a bundle's; raises BundleError."""
    parts = name.split("/")
    safe = all(_PART.fullmatch(part) and not part.endswith((".", " ")) for part in parts) and parts[0] in _TOP
    if safe and parts[0] == "runs":
        safe = len(parts) >= 3 and (len(parts) == 3 or parts[2] in RUN_FOLDERS) and not parts[-1].endswith(".lock")
    if not safe:
        raise BundleError(f"{where} lists the file {name!r}, which has no place in a bundle: nothing was imported")


class BundleReader(Protocol):
    """An open bundle."""

    @property
    def path(self) -> Path: ...
    def open(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Raises BundleError for a file that is not there."""
        ...


@dataclass(frozen=True, slots=True)
class FolderReader:
    """A bundle that is a folder. Links in it are not followed."""

    path: Path

    @contextlib.contextmanager
    def open(self, name: str) -> Generator[IO[bytes]]:
        file = self.path / name
        places = [self.path.joinpath(*Path(name).parts[:depth]) for depth in range(1, len(Path(name).parts) + 1)]
        if any(place.is_symlink() for place in places):
            raise BundleError(f"{file} is a link, which a bundle never holds: nothing was imported")
        if not file.is_file():
            raise BundleError(f"{file} is missing from the bundle: copy it again")
        with file.open("rb") as content:
            yield content


@dataclass(frozen=True, slots=True)
class ZipReader:
    """A bundle that is a zip file."""

    path: Path
    archive: zipfile.ZipFile

    @contextlib.contextmanager
    def open(self, name: str) -> Generator[IO[bytes]]:
        try:
            with self.archive.open(name) as content:
                yield content
        except KeyError as error:
            raise BundleError(f"{name} is missing from {self.path}: copy the bundle again") from error
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise BundleError(f"{name} in {self.path} is damaged ({error}): copy the bundle again") from error


@contextlib.contextmanager
def open_bundle(path: Path) -> Generator[tuple[BundleReader, Manifest]]:
    """The bundle and its manifest. Raises BundleError."""
    with contextlib.ExitStack() as stack:
        reader: BundleReader
        if path.is_dir():
            reader = FolderReader(path)
        elif path.is_file():
            try:
                reader = ZipReader(path, stack.enter_context(zipfile.ZipFile(path)))
            except zipfile.BadZipFile as error:
                raise BundleError(f"{path} is no zip file or is cut short ({error}): copy the bundle again") from error
        else:
            raise BundleError(f"there is no bundle at {path}")
        with reader.open(MANIFEST) as file:
            manifest = Manifest.from_json(file.read(), path)
        yield reader, manifest


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The rest of ``file`` in blocks."""
    while block := file.read(BLOCK_BYTES):
        yield block


def copy_checked(reader: BundleReader, name: str, expected: BundledFile, target: Path | None) -> None:
    """Copy one file out of the bundle (to nowhere for None), durably; raises BundleError unless it is as listed."""
    digest, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(reader.open(name))
        output = None
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            output = stack.enter_context(target.open("wb"))
        for block in blocks(source):
            digest.update(block)
            size += len(block)
            if output is not None:
                output.write(block)
        if output is not None:
            output.flush()
            os.fsync(output.fileno())
    if (size, digest.hexdigest()) != (expected.bytes, expected.sha256):
        raise BundleError(f"{name} in {reader.path} does not agree with its checksum: copy the bundle again")


def file_sha256(path: Path) -> str:
    """Checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
