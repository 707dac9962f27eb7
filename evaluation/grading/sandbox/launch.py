"""What both back ends share: limiting, watching and ending a process tree."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from evaluation.grading.sandbox.base import Limits, Outcome

NOBODY = 65534
"""The user programs run as when the caller is root: root is exempt from the limit on processes."""

STARTED = b"\x02started\n"
"""Beginning of the standard output of every program, written before its own first statement."""

_CHUNK = 1 << 16
_LOOK_SECONDS = 0.05

# Limits are set inside, by a shell that then becomes the program: setting them in the forked child of this process
# would run Python between fork and exec, which a process with threads must not. The soft processor limit comes first
# so that a slow program ends by SIGXCPU and can be told from one killed otherwise. dash spells processes -p, bash -u.
_LIMIT_SHELL = (
    'ulimit -c 0 && ulimit -v "$1" && ulimit -S -t "$2" && ulimit -H -t "$3" && ulimit -f "$4" && ulimit -n 64 '
    '&& { [ "$5" = 0 ] || ulimit -u "$5" 2>/dev/null || ulimit -p "$5"; } && shift 5 && exec "$@"'
)


def limited(command: Sequence[str], limits: Limits, *, others: int | None = 0) -> list[str]:
    """``command`` under the resource limits.

    The kernel counts all processes of the user: ``others`` is how many may run beside the program's own. None sets no
    limit on processes, where the back end counts them itself.
    """
    seconds, processes = limits.cpu_seconds, 0 if others is None else limits.processes + others
    numbers = (limits.memory_bytes // 1024, seconds, seconds + 1, limits.file_bytes // 512, processes)
    return ["/bin/sh", "-c", _LIMIT_SHELL, "sh", *map(str, numbers), *command]


def pythons() -> list[tuple[Path, Path]]:
    """Interpreters to try, each with the folder it must see: this process's own, then the system's."""
    own = Path(os.path.realpath(sys.executable))
    candidates = [(own, Path(os.path.realpath(sys.base_prefix))), (Path("/usr/bin/python3"), Path("/usr"))]
    return [(interpreter, prefix) for interpreter, prefix in candidates if interpreter.exists()]


def with_marker(source: str) -> bytes:
    """``source`` preceded by the statement that says it began."""
    return f"import os as _os; _os.write(1, {STARTED!r}); del _os\n{source}".encode("utf-8", "replace")


def environment(home: str) -> dict[str, str]:
    """All that a program's environment holds; a fixed hash seed makes sets come out in one order."""
    return {"PATH": "/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}


@contextlib.contextmanager
def scratch(source: str) -> Generator[tuple[str, Path]]:
    """A folder that the program's user owns, and the program in it; gone afterwards."""
    folder = tempfile.mkdtemp(prefix="program-")
    try:
        program = Path(folder, "program.py")
        program.write_bytes(with_marker(source))
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            program.chmod(0o644)
        yield folder, program
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def watch(
    command: Sequence[str],
    *,
    stdin: bytes,
    limits: Limits,
    environment: dict[str, str],
    folder: str,
    end: Callable[[subprocess.Popen[bytes]], None],
    pass_fds: Sequence[int] = (),
) -> Outcome:
    """Runs ``command`` to its end or to a limit. ``end`` kills the whole tree and is always called."""
    began = time.monotonic()
    nobody = NOBODY if os.getuid() == 0 else None
    with tempfile.TemporaryFile() as fed:
        fed.write(stdin)
        fed.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=fed,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                pass_fds=pass_fds,
                start_new_session=True,
                user=nobody,
                group=nobody,
                extra_groups=None if nobody is None else [],
            )
        except OSError as error:
            return Outcome(False, None, b"", str(error).encode(), False, False, time.monotonic() - began)
    with process:
        try:
            stdout, stderr, ended_by = _gather(process, limits, began + limits.wall_seconds, end)
        finally:
            end(process)
    code = process.returncode
    return Outcome(
        started=stdout.startswith(STARTED),
        exit_code=None if ended_by else code,
        stdout=stdout.removeprefix(STARTED),
        stderr=stderr,
        timed_out=ended_by == "time" or code in (-signal.SIGXCPU, 128 + signal.SIGXCPU),
        flooded=ended_by == "output",
        seconds=time.monotonic() - began,
    )


def _gather(
    process: subprocess.Popen[bytes],
    limits: Limits,
    deadline: float,
    end: Callable[[subprocess.Popen[bytes]], None],
) -> tuple[bytes, bytes, str | None]:
    """Both outputs, and what ended the program from outside: "time", "output" or None."""
    assert process.stdout and process.stderr
    gathered = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    ended_by: str | None = None
    with selectors.DefaultSelector() as selector:
        for descriptor in gathered:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(_LOOK_SECONDS):
                received = os.read(key.fd, _CHUNK)
                if not received:
                    selector.unregister(key.fd)
                elif ended_by is None:
                    gathered[key.fd].extend(received)
            if ended_by is None and sum(map(len, gathered.values())) > limits.output_bytes + len(STARTED):
                ended_by = "output"
            elif ended_by is None and time.monotonic() > deadline:
                ended_by = "time"
            if ended_by is not None or process.poll() is not None:
                end(process)  # what the program left behind may hold the pipes open
    stdout, stderr = (bytes(part) for part in gathered.values())
    return stdout, stderr, ended_by
