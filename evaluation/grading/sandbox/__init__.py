"""Running programs that a model wrote: the port, its back ends, and the choice between them."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evaluation.grading.sandbox.base import Limits, Outcome, Sandbox, SandboxUnavailableError
from evaluation.grading.sandbox.bubblewrap import Bubblewrap, find_executable
from evaluation.grading.sandbox.landlock import Sandlock, find_library
from evaluation.grading.sandbox.launch import pythons
from evaluation.grading.sandbox.rlimits import ResourceLimits

__all__ = ["Limits", "Outcome", "Sandbox", "SandboxUnavailableError", "examine_sandboxes", "find_sandbox"]

INSTALL = "apt-get install -y bubblewrap"
"""What the error says to type (Debian and Ubuntu; other systems name the package the same)."""

ALLOW_UNSAFE = "STILLROOM_ALLOW_UNSAFE_CODE"
"""Setting (1) that lets programs run under resource limits alone where no sandbox works."""

_PROBE = """
import os, socket, sys
assert os.getuid() != 0
given = sys.stdin.read().split("\\n")
if given[0] == "isolated":
    _, secret, pid, port, name = given
    def refused(attempt):
        try:
            attempt()
        except OSError:
            return
        raise AssertionError("a probe of the isolation got through")
    def local(family, address):
        with socket.socket(family) as caller:
            caller.settimeout(1)
            caller.connect(address)
    refused(lambda: open(secret))
    try:
        open(secret + ".new", "w").close()  # harmless in a folder of its own
    except OSError:
        pass
    refused(lambda: open(f"/proc/{pid}/environ", "rb").read())
    refused(lambda: os.kill(int(pid), 0))
    refused(lambda: local(socket.AF_INET, ("127.0.0.1", int(port))))
    refused(lambda: local(socket.AF_UNIX, chr(0) + name))
print(6 * 7)
"""


def _isolating(tried: list[str]) -> Iterator[Sandbox]:
    """The back ends that isolate, in the order of preference; ``tried`` hears of those that are not installed."""
    executable, library = find_executable(), find_library()
    if executable is None:
        tried.append("bubblewrap is not installed")
    else:
        yield from (Bubblewrap(executable, python, prefix) for python, prefix in pythons())
    if library is None:
        tried.append("sandlock is not installed")
    else:
        yield from (Sandlock(library, python, prefix) for python, prefix in pythons())


def _fault(sandbox: Sandbox) -> str | None:
    """Why ``sandbox`` is not to be used here, found out by running a program in it; None when it may be.

    One that isolates must also keep the program from a file, a process and two listening sockets of this process.
    """
    if not sandbox.isolates:
        outcome = sandbox.run(_PROBE)
    else:
        with contextlib.ExitStack() as stack:
            secret = stack.enter_context(tempfile.NamedTemporaryFile(mode="w"))
            os.chmod(secret.name, 0o644)
            stack.callback(lambda: Path(secret.name + ".new").unlink(missing_ok=True))
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            names = [secret.name, str(os.getpid()), str(listener.getsockname()[1])]
            name = f"stillroom-{secrets.token_hex(8)}"
            if sys.platform == "linux":
                abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
                abstract.bind("\0" + name)
                abstract.listen()
            outcome = sandbox.run(_PROBE, stdin="\n".join(["isolated", *names, name]).encode())
            if Path(secret.name + ".new").exists():
                return "a program could write among this machine's files"
    return None if outcome.stdout == b"42\n" else outcome.stderr.decode(errors="replace").strip()[-300:] or "no message"


@functools.cache
def find_sandbox(allow_unsafe: bool | None = None) -> Sandbox:
    """The sandbox of this machine, chosen by running a program in it; looked for once a process.

    ``allow_unsafe`` None follows the setting STILLROOM_ALLOW_UNSAFE_CODE. Raises SandboxUnavailableError when
    neither bubblewrap nor sandlock works here and unsafe running is not allowed.
    """
    tried: list[str] = []
    for candidate in _isolating(tried):
        if (reason := _fault(candidate)) is None:
            return candidate
        tried.append(f"{candidate.name}: {reason}")
    if os.environ.get(ALLOW_UNSAFE) == "1" if allow_unsafe is None else allow_unsafe:
        for python, _ in pythons():
            unsafe = ResourceLimits(python)
            if (reason := _fault(unsafe)) is None:
                return unsafe
            tried.append(f"{unsafe.name}: {reason}")
    raise SandboxUnavailableError(
        f"no sandbox to run code answers in ({'; '.join(tried)}). Install one: {INSTALL}. Or set "
        f"{ALLOW_UNSAFE}=1 to run them under resource limits alone, with files and network within their reach."
    )


def examine_sandboxes() -> dict[str, str | None]:
    """Each back end that isolates, in the order of preference: None where it works here, else why not."""
    absent: list[str] = []
    found: dict[str, str | None] = {}
    for candidate in _isolating(absent):
        kind = candidate.name.partition(" ")[0]
        if found.get(kind, "") is not None:
            found[kind] = _fault(candidate)
    return found | {reason.partition(" ")[0]: "not installed" for reason in absent}
