"""Programs under resource limits only. This is no sandbox against malice: files and network are within reach."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from evaluation.grading.sandbox.base import Limits, Outcome
from evaluation.grading.sandbox.launch import NOBODY, environment, limited, scratch, watch

MARK = "STILLROOM_PROGRAM"
"""Environment variable whose value tells the processes of one program from all others."""
_SWEEPS = 20
"""A tree under the limit on processes cannot outgrow so many rounds of killing all of it."""


class ResourceLimits:
    """Time, memory, processes, file sizes and output are limited and the environment is clean; nothing else is."""

    isolates = False

    def __init__(self, python: Path) -> None:
        self.python = python
        self.name = f"resource limits only ({python})"

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Runs ``source`` in a scratch folder, as nobody when the caller is root."""
        limits = limits or Limits()
        mark = secrets.token_hex(16)
        with scratch(source) as (folder, program):
            return watch(
                limited([str(self.python), "-s", "-S", "-B", str(program)], limits, others=_others()),
                stdin=stdin,
                limits=limits,
                environment={**environment(folder), MARK: mark},
                folder=folder,
                end=lambda process: kill_tree(process, mark),
            )


def _others() -> int:
    """Threads of the user that programs run as: they count against the limit on processes (Linux)."""
    user, count = NOBODY if os.getuid() == 0 else os.getuid(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            count += len(os.listdir(folder / "task")) if folder.stat().st_uid == user else 0
    return count


def kill_tree(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kills the process group, then whatever left it but carries the mark in its environment (Linux)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for _ in range(_SWEEPS):
        left = _marked(mark)
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
