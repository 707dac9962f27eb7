"""What makes two runs the same run: the spec, the model's and data's contents, and the code that computes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from training.spec import RunSpec

REPOSITORY = Path(__file__).resolve().parent.parent

NUMBERLESS = ("evaluation/results", "evaluation/statistics", "evaluation/bench.py", "training/bench")
"""Sources of training and evaluation that read or measure results and decide none."""

SOURCES = ("flows", "training", "evaluation", "dashboard")
"""Folders whose new files belong to the code a run was started with."""

MOST_PATCH_BYTES = 2**20
"""A larger patch of the working tree is not kept: its hash is, and the run cannot be reproduced from the store."""

RECORDED_PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "prefect", "ray", "duckdb", "pyarrow", "deepspeed",
    "math-verify", "pydantic", "peft",
)  # fmt: skip


@functools.cache
def code_hash() -> str:
    """SHA-256 over the Python sources that decide a run's numbers."""
    digest = hashlib.sha256()
    for package in ("training", "evaluation"):
        for file in sorted((REPOSITORY / package).rglob("*.py")):
            name = file.relative_to(REPOSITORY).as_posix()
            if not name.startswith(NUMBERLESS):
                digest.update(f"{name}\n".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()


def identity(spec: RunSpec, model_hash: str, data_hash: str) -> dict[str, str]:
    """The named hashes a run's id is made of. Where model and data lie is left out: their contents are hashed."""
    content = spec.canonical()
    content["model"].pop("name")
    for place in ("train", "validation", "test"):
        (content["data"] or {}).pop(place, None)
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return {
        "spec": hashlib.sha256(canonical.encode()).hexdigest(),
        "model": model_hash,
        "data": data_hash,
        "code": code_hash(),
    }


def run_id(spec: RunSpec, parts: dict[str, str]) -> str:
    """``<method>-s<seed>-<12 hex digits of the identity>``."""
    digest = hashlib.sha256("".join(parts[name] for name in sorted(parts)).encode()).hexdigest()
    key = spec.method.key if spec.method else "base"
    return f"{key}-s{spec.seed}-{digest[:12]}"


@functools.cache
def provenance() -> dict[str, Any]:
    """Where a run was started and with what; recorded, not part of its identity."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "command": sys.argv,
        "packages": {name: version for name in RECORDED_PACKAGES if (version := _version(name))},
        "code_hash": code_hash(),
        **_git(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def working_changes() -> bytes | None:
    """What the working tree has beyond its commit, as a patch: changes, and new files below SOURCES.

    None where there is no git, or nothing is changed.
    """
    patch = _ask_git("diff", "HEAD", "--binary")
    if patch is None:
        return None
    new = _ask_git("ls-files", "-z", "--others", "--exclude-standard", "--", *SOURCES) or b""
    for name in filter(None, new.decode().split("\0")):
        patch += _ask_git("diff", "--no-index", "--binary", "--", os.devnull, name, ok=(0, 1)) or b""
    return patch or None


def keep_changes(store: Path) -> None:
    """Keep the patch of ``working_changes`` in the store, once, under its hash; none that is too large."""
    patch = working_changes()
    if patch is not None and len(patch) <= MOST_PATCH_BYTES:
        file = store / _patch_file(patch)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
            temporary.write_bytes(patch)
            temporary.replace(file)


def _patch_file(patch: bytes) -> str:
    return f"code/{hashlib.sha256(patch).hexdigest()}.patch"


def _ask_git(*words: str, ok: tuple[int, ...] = (0,)) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in ok else None


def _git() -> dict[str, Any]:
    commit, patch = _ask_git("rev-parse", "HEAD"), working_changes()
    kept = patch is not None and len(patch) <= MOST_PATCH_BYTES
    return {
        "git_commit": commit.decode().strip() if commit else None,
        "git_dirty": patch is not None if commit else None,
        "git_diff_hash": hashlib.sha256(patch).hexdigest() if patch else None,
        "git_diff_bytes": len(patch) if patch else None,
        "git_diff_file": _patch_file(patch) if patch and kept else None,
    }
