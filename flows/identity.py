"""What makes two runs the same run: the spec, the model's and data's contents, and the code that computes."""

from __future__ import annotations

import functools
import hashlib
import json
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


def _git() -> dict[str, Any]:
    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    status = ask("status", "--porcelain", "--untracked-files=no")
    diff = ask("diff", "HEAD")
    return {
        "git_commit": commit,
        "git_dirty": bool(status) if status is not None else None,
        "git_diff_hash": hashlib.sha256(diff.encode()).hexdigest() if diff else None,
    }
