"""Prefect's API server for one driver: a child process that never outlives it.

Prefect's own temporary server survives a driver that is killed; this one watches its parent.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.errors import StudyError

START_TIMEOUT_SECONDS = 180.0
"""A fresh database takes 16 to 38 s of migrations on two busy cores."""


class ServerError(StudyError):
    """The Prefect server did not come up."""


POLL_SECONDS = 0.5

DATABASE_LOCK = "prefect.lock"
"""In the folder of logs; held by the driver that uses the store's own Prefect database."""

UNUSED_SERVICES = (
    "CANCELLATION_CLEANUP",
    "CLEANUP_RECONCILER",
    "EVENT_PERSISTER",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "REPOSSESSOR",
    "SCHEDULER",
    "TRIGGERS",
)
"""What only deployments and automations need: polling that would take a share of a core from the study."""


@contextmanager
def prefect_server(log: Path) -> Generator[str]:
    """The URL of a running Prefect API: the one PREFECT_API_URL names, else a child server of this process.

    Raises ServerError with the end of the server's log.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        yield given
        return
    with _database(log.parent) as database, _child_server(log, database) as url:
        os.environ["PREFECT_API_URL"] = url
        try:
            yield url
        finally:
            os.environ.pop("PREFECT_API_URL", None)


@contextmanager
def _database(folder: Path) -> Generator[dict[str, str]]:
    """Settings of the server's database: Prefect's usual one, or one of its own while another driver has that."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {}
    with (folder / DATABASE_LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file = folder / f"prefect-{os.getpid()}.db"
            settings["PREFECT_API_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{file}"
        yield settings


@contextmanager
def _child_server(log: Path, database: dict[str, str]) -> Generator[str]:
    """A server that is started again, on the same port and database, when it dies before its time."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    server = _Server(_start(port, log, database))
    ending = threading.Event()

    def keep_alive() -> None:
        while not ending.wait(POLL_SECONDS):
            if server.process.poll() is not None:
                server.process = _start(port, log, database)

    try:
        _await_health(url, server.process, log)
        keeper = threading.Thread(target=keep_alive, daemon=True)
        keeper.start()
        yield url
        ending.set()
        keeper.join()
    finally:
        ending.set()
        server.process.terminate()
        try:
            server.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


@dataclass
class _Server:
    process: subprocess.Popen[bytes]


def _start(port: int, log: Path, database: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.server", str(port), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches the terminal's whole group; the driver ends this child in order
            env={
                **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in UNUSED_SERVICES},
                **database,
                **os.environ,
                "PREFECT_UI_ENABLED": "0",
                "PREFECT__SERVER_EPHEMERAL": "1",
            },
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(
                f"the Prefect server ended with code {process.returncode}; its log {log} ends: {_tail(log)}"
            )
        try:
            with opener.open(f"{url}/health", timeout=2) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise ServerError(f"the Prefect server did not answer within {START_TIMEOUT_SECONDS:.0f} s; see {log}")


def _tail(log: Path, lines: int = 5) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-lines:])


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(0)


def main() -> None:
    """``python -m flows.server PORT PARENT_PID``: serve until told to stop or until the parent is gone."""
    port, parent = int(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    import uvicorn

    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        host="127.0.0.1",
        port=port,
        log_level="error",
        lifespan="on",
    )


if __name__ == "__main__":
    main()
