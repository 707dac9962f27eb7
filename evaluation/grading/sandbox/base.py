"""The sandbox port: running a program that nobody trusts, and saying how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class SandboxUnavailableError(RuntimeError):
    """No sandbox works on this machine; the message says what was tried and what to install."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use."""

    cpu_seconds: int = 10
    """Processor time; the limit that slow programs meet, whatever else the machine does."""
    wall_seconds: float = 30.0
    """Time by the clock, for programs that wait."""
    memory_bytes: int = 512 << 20
    """Address space of each process."""
    processes: int = 32
    file_bytes: int = 16 << 20
    """Size of each file written, and of the program's scratch folder."""
    output_bytes: int = 64 << 10
    """Standard output and standard error together; a program that writes more is ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended.

    ``started`` is False when the sandbox failed before the program ran: that says nothing about the program, and
    ``stderr`` says why. ``exit_code`` is negative for a signal, None when the program was ended from outside.
    """

    started: bool
    exit_code: int | None
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    timed_out: bool
    flooded: bool
    """It was ended because it wrote more than ``output_bytes``."""
    seconds: float


class Sandbox(Protocol):
    """Runs Python programs, each in a process tree of its own that is gone when ``run`` returns."""

    name: str
    isolates: bool
    """Whether files, network, signals and other processes are out of reach (resource limits alone do not)."""

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Runs ``source`` with ``stdin``; may be called from several threads."""
        ...
