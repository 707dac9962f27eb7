"""Checks that really start what a study starts, in child processes with folders of their own and a time limit."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from flows.doctor.check import Check

RAY_LIMIT_SECONDS = 120.0
PREFECT_LIMIT_SECONDS = 240.0
"""A new database takes up to 40 s of migrations on two busy cores, and the server's own limit is 180 s."""
PROGRAM_LIMIT_SECONDS = 30.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

_CALLERS_FILE = str(Path(__file__).resolve())
INSTALL_BUBBLEWRAP = "apt-get install bubblewrap"
INSTALL_BROWSER = "apt-get install chromium fonts-dejavu-core"

# Says what it can see from inside: interfaces of the network, a file of the caller's, inherited variables.
_SANDBOXED = """
import json, os, socket, sys
try:
    with open(sys.argv[1]) as file:
        file.read(1)
    readable = True
except OSError:
    readable = False
print(json.dumps({"sum": sum(range(11)), "interfaces": [name for _, name in socket.if_nameindex()],
                  "the caller's files": readable, "the caller's environment": "STILLROOM_PROBE" in os.environ}))
"""
_IN_SANDLOCK = """
import sys
from sandlock import Sandbox
box = Sandbox(fs_readable=sys.argv[4:], clean_env=True, max_memory="512M", max_processes=4)
done = box.run([sys.argv[1], "-I", "-S", "-c", sys.argv[2], sys.argv[3]], timeout=20)
sys.stdout.write(done.stdout if isinstance(done.stdout, str) else done.stdout.decode())
sys.exit(0 if done.success else 1)
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
    """Run a program in bubblewrap, else in sandlock: it must run, and see nothing of the caller's."""
    tried = []
    if shutil.which("bwrap"):
        reason = _sandbox_leak(bubblewrap_command(_SANDBOXED))
        if reason is None:
            return Check("sandbox", True, "bubblewrap keeps programs from network, files and environment")
        tried.append(f"bubblewrap: {reason}")
    if importlib.util.find_spec("sandlock"):
        reason = _sandbox_leak(_sandlock_command(_SANDBOXED))
        if reason is None:
            return Check("sandbox", True, "sandlock keeps programs from network, files and environment")
        tried.append(f"sandlock: {reason}")
    if not tried:
        return Check("sandbox", None, "none installed; benchmarks that run code need one", INSTALL_BUBBLEWRAP)
    fix = "allow unprivileged user namespaces (in a container: run it without the default seccomp profile)"
    return Check("sandbox", None, "; ".join(tried), fix)


def bubblewrap_command(code: str) -> list[str]:
    """bwrap with only the system and this Python readable, running ``code``."""
    python, prefix = os.path.realpath(sys.executable), sys.base_prefix
    command = ["bwrap", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "bin"):
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    if not Path(prefix).is_relative_to("/usr"):
        command += ["--ro-bind", prefix, prefix]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--uid", "65534"]
    command += ["--gid", "65534", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL", "--"]
    return [*command, python, "-I", "-S", "-c", code, _CALLERS_FILE]


def _sandlock_command(code: str) -> list[str]:
    readable = [
        folder for folder in ("/usr", "/lib", "/lib64", "/bin", "/etc", sys.base_prefix) if Path(folder).exists()
    ]
    return [sys.executable, "-c", _IN_SANDLOCK, os.path.realpath(sys.executable), code, _CALLERS_FILE, *readable]


def _sandbox_leak(command: list[str]) -> str | None:
    """Why the sandbox does not serve: it does not start, or the program sees too much. None when it serves."""
    environment = {**os.environ, "STILLROOM_PROBE": "1"}
    code, output, errors = run_limited(command, environment, PROGRAM_LIMIT_SECONDS)
    if code != 0:
        return (errors.strip().splitlines() or [f"ended with code {code}"])[-1]
    seen = json.loads(output)
    leaks = [name for name, value in seen.items() if value is True]
    if set(seen["interfaces"]) - {"lo"}:
        leaks.append(f"network {', '.join(seen['interfaces'])}")
    return f"the program could see {', '.join(leaks)}" if leaks or seen["sum"] != 55 else None


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
