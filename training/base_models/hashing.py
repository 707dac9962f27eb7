"""The content hash of a model folder: which weights, configuration and tokenizer a run starts from."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt")
_OTHER_PATTERNS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "*.safetensors.index.json",
    *TOKENIZER_FILES,
)

_REMEMBERED_FROM_BYTES = 64 * 2**20
"""Files of this size and more are hashed once and remembered by path, size and modification time."""


def weight_files(folder: Path) -> list[Path]:
    """The weight files of ``folder``; safetensors hide PyTorch pickles, which transformers then ignores too."""
    for pattern in WEIGHT_PATTERNS:
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def content_hash(folder: Path, cache: Path) -> str:
    """sha256 over the names and contents of weight, configuration and tokenizer files of ``folder``.

    Digests of big files are remembered under ``cache``, by path, size and modification time.
    """
    files = {path.name: path for path in weight_files(folder)}
    for pattern in _OTHER_PATTERNS:
        files |= {path.name: path for path in folder.glob(pattern) if path.is_file()}
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{_file_digest(files[name], cache)}\n".encode())
    return total.hexdigest()


def _file_digest(path: Path, cache: Path) -> str:
    status = path.stat()
    if status.st_size < _REMEMBERED_FROM_BYTES:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    identity = [str(path.resolve()), status.st_size, status.st_mtime_ns]
    note = cache / "digests" / f"{hashlib.sha256(json.dumps(identity).encode()).hexdigest()}.txt"
    if note.is_file():
        return note.read_text()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    note.parent.mkdir(parents=True, exist_ok=True)
    unfinished = note.with_suffix(f".{os.getpid()}")
    unfinished.write_text(digest)
    unfinished.replace(note)
    return digest
