"""Programs in namespaces of their own, by bubblewrap.

They see the interpreter's files and a scratch folder, and neither the network nor any other process.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from evaluation.grading.sandbox.base import Limits, Outcome
from evaluation.grading.sandbox.launch import NOBODY, environment, limited, watch, with_marker

PROGRAM = "/program.py"
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")


class Bubblewrap:
    """A sandbox that isolates. ``python`` is the interpreter inside, ``prefix`` the folder it is installed in."""

    isolates = True

    def __init__(self, executable: str, python: Path, prefix: Path) -> None:
        self.executable, self.python, self.prefix = executable, python, prefix
        self.name = f"bubblewrap ({python})"

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Runs ``source`` as user 65534 in namespaces of its own; everything it started is gone on return."""
        limits = limits or Limits()
        with tempfile.TemporaryFile() as program:
            program.write(with_marker(source))
            program.seek(0)
            inside = limited([str(self.python), "-s", "-S", "-B", PROGRAM], limits)
            return watch(
                [*self._enter(program.fileno(), limits), "--", *inside],
                stdin=stdin,
                limits=limits,
                environment={"PATH": os.defpath},
                folder="/",
                end=_kill,
                pass_fds=(program.fileno(),),
            )

    def _enter(self, program: int, limits: Limits) -> list[str]:
        options = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv"]
        options += ["--cap-drop", "ALL", "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]
        options += ["--disable-userns"] if _can_disable_userns(self.executable) else []
        options += ["--ro-bind", "/usr", "/usr"]
        for folder in filter(os.path.exists, _SYSTEM_FOLDERS):
            link = os.path.islink(folder)
            options += ["--symlink", os.readlink(folder), folder] if link else ["--ro-bind", folder, folder]
        if not self.prefix.is_relative_to("/usr"):
            options += ["--ro-bind", str(self.prefix), str(self.prefix)]
        options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--proc", "/proc", "--dev", "/dev"]
        options += ["--size", str(limits.file_bytes), "--tmpfs", "/tmp", "--ro-bind-data", str(program), PROGRAM]
        for name, value in environment("/tmp").items():
            options += ["--setenv", name, value]
        return [self.executable, *options, "--chdir", "/tmp", "--remount-ro", "/"]


@functools.cache
def _can_disable_userns(executable: str) -> bool:
    shown = subprocess.run([executable, "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in shown.stdout + shown.stderr


def find_executable() -> str | None:
    return shutil.which("bwrap")


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The first process of a process namespace takes all others with it.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
