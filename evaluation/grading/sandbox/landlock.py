"""Programs confined by the kernel's Landlock and seccomp, through the library sandlock (Linux 6.7 or later).

For machines where namespaces are forbidden, such as containers. The library needs no privileges and no set-up. What it
does not do is ours: a user of its own, limits of time, output and address space, and the end of the whole tree.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from evaluation.grading.sandbox.base import Limits, Outcome
from evaluation.grading.sandbox.launch import environment, limited, scratch, watch
from evaluation.grading.sandbox.rlimits import MARK, kill_tree

_READABLE = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom", "/dev/zero")

# Runs outside the confinement, as the program's user, and starts the program inside it with this process's own streams.
# The library is found by its folder alone: nothing else of the environment is on the path.
_RUNNER = """
import importlib.util, json, os, sys
job = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("sandlock", job["library"], submodule_search_locations=[job["folder"]])
sys.modules["sandlock"] = sandlock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sandlock)
box = sandlock.Sandbox(fs_readable=job["readable"], fs_writable=job["writable"], clean_env=True, env=job["env"],
                       max_processes=job["processes"], no_coredump=True, cwd=job["cwd"])
code = box.run_interactive(job["command"])
os._exit(code if 0 <= code < 256 else 128 - code if -128 < code < 0 else 1)
"""

_TELLS_SIGNALS = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""A shell says which signal ended a program (128 + its number); the library says only that one did."""


class Sandlock:
    """A sandbox that isolates. ``python`` is the interpreter inside, ``prefix`` the folder it is installed in."""

    isolates = True

    def __init__(self, library: Path, python: Path, prefix: Path) -> None:
        self.library, self.python, self.prefix = library, python, prefix
        self.name = f"sandlock ({python})"

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Runs ``source`` with a scratch folder as the only place it can write; all it started is gone on return."""
        limits = limits or Limits()
        mark = secrets.token_hex(16)
        with scratch(source) as (folder, program):
            return watch(
                [str(self.python), "-I", "-S", "-B", "-c", _RUNNER, self._job(folder, program, mark, limits)],
                stdin=stdin,
                limits=limits,
                environment={"PATH": os.defpath, MARK: mark},
                folder=folder,
                end=lambda process: kill_tree(process, mark),
            )

    def _job(self, folder: str, program: Path, mark: str, limits: Limits) -> str:
        readable = [place for place in (*_READABLE, str(self.prefix)) if os.path.exists(place)]
        return json.dumps(
            {
                "library": str(self.library),
                "folder": str(self.library.parent),
                "readable": readable,
                "writable": [folder, "/dev/null"],
                "env": {**environment(folder), MARK: mark},
                "processes": limits.processes,
                "cwd": folder,
                "command": [
                    *_TELLS_SIGNALS,
                    *limited([str(self.python), "-s", "-S", "-B", str(program)], limits, others=None),
                ],
            }
        )


def find_library() -> Path | None:
    """The library's module file; None where it is not installed (it is a dependency on Linux only)."""
    import importlib.util

    spec = importlib.util.find_spec("sandlock")
    if spec is None or spec.origin is None:
        return None
    return _readable_by_all(Path(spec.origin)) if os.getuid() == 0 else Path(spec.origin)


@functools.cache
def _readable_by_all(module: Path) -> Path:
    """A copy of the library that the user of programs can read: root's environment may lie in a closed folder."""
    folder = Path(tempfile.mkdtemp(prefix="sandlock-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = shutil.copytree(module.parent, folder / "sandlock", ignore=shutil.ignore_patterns("__pycache__", "mcp"))
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755)
    return copy / module.name
