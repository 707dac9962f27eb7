"""Running programs that a model wrote: the port, its back ends, and the choice between them."""

from __future__ import annotations

import functools
import os

from evaluation.grading.sandbox.base import Limits, Outcome, Sandbox, SandboxUnavailableError
from evaluation.grading.sandbox.bubblewrap import Bubblewrap, find_executable
from evaluation.grading.sandbox.launch import pythons
from evaluation.grading.sandbox.rlimits import ResourceLimits

__all__ = ["Limits", "Outcome", "Sandbox", "SandboxUnavailableError", "find_sandbox"]

INSTALL = "apt-get install -y bubblewrap"
"""What the error says to type (Debian and Ubuntu; other systems name the package the same)."""

ALLOW_UNSAFE = "STILLROOM_ALLOW_UNSAFE_CODE"
"""Setting (1) that lets programs run under resource limits alone where no sandbox works."""

_PROBE = """
import os, sys
assert os.getuid() != 0
if sys.stdin.read() == "isolated":
    assert not os.path.exists("/etc/passwd")
    assert os.listdir("/proc/1/task") and len([p for p in os.listdir("/proc") if p.isdigit()]) < 6
print(6 * 7)
"""


@functools.cache
def find_sandbox(allow_unsafe: bool | None = None) -> Sandbox:
    """The sandbox of this machine, chosen by running a program in it; looked for once a process.

    ``allow_unsafe`` None follows the setting STILLROOM_ALLOW_UNSAFE_CODE. Raises SandboxUnavailableError when
    bubblewrap is missing or does not work here and unsafe running is not allowed.
    """
    executable = find_executable()
    tried = ["bubblewrap is not installed" if executable is None else ""]
    if executable is not None:
        for python, prefix in pythons():
            sandbox = Bubblewrap(executable, python, prefix)
            outcome = sandbox.run(_PROBE, stdin=b"isolated")
            if outcome.stdout == b"42\n":
                return sandbox
            tried.append(f"{sandbox.name}: {outcome.stderr.decode(errors='replace').strip()[-300:]}")
    if os.environ.get(ALLOW_UNSAFE) == "1" if allow_unsafe is None else allow_unsafe:
        for python, _ in pythons():
            unsafe = ResourceLimits(python)
            outcome = unsafe.run(_PROBE)
            if outcome.stdout == b"42\n":
                return unsafe
            tried.append(f"{unsafe.name}: {outcome.stderr.decode(errors='replace').strip()[-300:]}")
    raise SandboxUnavailableError(
        f"no sandbox to run code answers in ({'; '.join(filter(None, tried))}). Install one: {INSTALL}. Or set "
        f"{ALLOW_UNSAFE}=1 to run them under resource limits alone, with files and network within their reach."
    )
