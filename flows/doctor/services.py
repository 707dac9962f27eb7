"""Checks that really start what a study starts, in child processes with folders of their own and a time limit."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flows.doctor.check import Check

if TYPE_CHECKING:
    from evaluation.grading.sandbox import Sandbox

RAY_LIMIT_SECONDS = 120.0
PREFECT_LIMIT_SECONDS = 240.0
"""A new database takes up to 40 s of migrations on two busy cores, and the server's own limit is 180 s."""
PROGRAM_LIMIT_SECONDS = 30.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

INSTALL_BROWSER = "apt-get install chromium fonts-dejavu-core"

# Says what it can see from inside: interfaces of the network, a file of the caller's, inherited variables.
_LOOK_AROUND = """
import json, os, socket, sys
path = sys.stdin.read()
try:
    with open(path) as file:
        file.read(1)
    readable = True
except OSError:
    readable = False
print(json.dumps({"network": [name for _, name in socket.if_nameindex() if name != "lo"],
                  "files": [path] if readable else [],
                  "environment": sorted(set(os.environ) & {"STILLROOM_STORE", "PREFECT_HOME", "HOSTNAME"})}))
"""


def run_limited(command: list[str], environment: dict[str, str], limit: float) -> tuple[int | None, str, str]:
    """(exit code or None after ``limit`` seconds, stdout, stderr) of a command that ends with all its children."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return None, output, errors


def _probe(name: str, kind: str, environment: dict[str, str], limit: float, fix: str) -> Check:
    command = [sys.executable, "-m", "flows.doctor.probes", kind]
    code, output, errors = run_limited(command, {**os.environ, **environment}, limit)
    if code == 0:
        return Check(name, True, output.strip().splitlines()[-1])
    if code is None:
        return Check(name, False, f"did not start within {limit:.0f} s", fix)
    return Check(name, False, (errors.strip().splitlines() or [f"ended with code {code}"])[-1], fix)


def ray_cluster() -> Check:
    """Start a private one-core Ray, run one task in it, and stop it."""
    # Paths of Unix sockets are limited to about 100 characters, so the folder's name is short.
    with tempfile.TemporaryDirectory(prefix="still-", ignore_cleanup_errors=True) as folder:
        environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "STILLROOM_PROBE_FOLDER": folder,
        }
        fix = "see that the temporary folder has 1 GiB free and that 127.0.0.1 can be reached, then stillroom doctor"
        return _probe("Ray", "ray", environment, RAY_LIMIT_SECONDS, fix)


def prefect_api() -> Check:
    """Start Prefect's server on a new database and ask it for its version; or ask the one PREFECT_API_URL names."""
    given = os.environ.get("PREFECT_API_URL")
    with tempfile.TemporaryDirectory(prefix="still-", ignore_cleanup_errors=True) as folder:
        environment = {"PREFECT_HOME": folder, "STILLROOM_PROBE_FOLDER": folder}
        fix = "start that server, or unset PREFECT_API_URL" if given else f"free some memory, or {_REBUILD}"
        return _probe("Prefect", "prefect", environment, PREFECT_LIMIT_SECONDS, fix)


_REBUILD = "rm -r .venv && make setup"


def sandbox() -> Check:
    """Run a program in the sandbox that code graders use: it must run, and see nothing of the caller's."""
    from evaluation.grading.sandbox import INSTALL, SandboxUnavailableError, examine_sandboxes, find_sandbox

    try:
        found = find_sandbox()
    except SandboxUnavailableError as error:
        return Check("sandbox", None, f"benchmarks that run code cannot be used: {error}", INSTALL)
    if not found.isolates:
        return Check("sandbox", None, f"programs run under {found.name}: files and network in reach", INSTALL)
    leak = sandbox_leak(found)
    if leak is not None:
        return Check("sandbox", None, f"{found.name}: {leak}", "report this; do not run code benchmarks here")
    others = [
        f"{name} {'works too' if reason is None else f'does not work here: {reason}'}"
        for name, reason in examine_sandboxes().items()
        if not found.name.startswith(name)
    ]
    kept = f"{found.name} keeps programs from network, files and environment"
    return Check("sandbox", True, "; ".join([kept, *others]))


def sandbox_leak(box: Sandbox) -> str | None:
    """What a program in ``box`` could see of the caller, or why it did not run; None when all is well."""
    outcome = box.run(_LOOK_AROUND, stdin=str(Path(__file__).resolve()).encode())
    if outcome.exit_code != 0:
        return outcome.stderr.decode(errors="replace").strip() or f"the program ended with {outcome.exit_code}"
    seen = json.loads(outcome.stdout)
    leaks = [f"{what} ({', '.join(names)})" for what, names in seen.items() if names]
    return f"a program could see {' and '.join(leaks)}" if leaks else None


def browser(*, start: bool) -> Check:
    """Chromium, which takes the dashboard's screenshots."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        return Check("browser", None, "no Chromium; only screenshots of the dashboard need it", INSTALL_BROWSER)
    if not start:
        return Check("browser", True, path)
    code, output, errors = run_limited([path, "--version"], dict(os.environ), PROGRAM_LIMIT_SECONDS)
    if code == 0:
        return Check("browser", True, f"{path}: {output.strip()}")
    return Check("browser", None, f"{path} does not start: {errors.strip()[-200:]}", INSTALL_BROWSER)
