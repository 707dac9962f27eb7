"""Every test runs quiet, offline, on one thread, in folders of its own; what a user's environment says is left out."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from flows.environment import OFFLINE_AND_QUIET

SCRATCH = "STILLROOM_TEST_SCRATCH"
"""Folder of one test session; the processes that xdist starts inherit it."""

SLOW_TIMEOUT_SECONDS = 1800
"""For slow tests that set no limit of their own; the others have the limit of pyproject.toml."""


def _set_environment() -> None:
    if SCRATCH not in os.environ:
        os.environ[SCRATCH] = tempfile.mkdtemp(prefix="still-tests-")
        atexit.register(shutil.rmtree, os.environ[SCRATCH], ignore_errors=True)
    scratch = Path(os.environ[SCRATCH])
    own = scratch / os.environ.get("PYTEST_XDIST_WORKER", "main")
    # A user's server, cluster or store must neither be seen nor touched.
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE", "RAY_ADDRESS", "RAY_AUTH_TOKEN"):
        os.environ.pop(name, None)
    os.environ.update(OFFLINE_AND_QUIET)
    os.environ.update(
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        RAY_AUTH_MODE="disabled",
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="180",
        DS_ACCELERATOR="cpu",
        STREAMLIT_SERVER_HEADLESS="true",
        PREFECT_HOME=str(own / "prefect"),
        STILLROOM_STORE=str(own / "store"),
        # Models are built or converted once a session, not once a worker.
        STILLROOM_CACHE=os.environ.get("STILLROOM_CACHE") or str(scratch / "cache"),
    )
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes that tests start would compile torch each time


def _refuse_the_outside() -> None:
    """TCP connections of this process reach only this machine. What C++ code or child processes open is not seen."""
    connect = socket.socket.connect
    own_addresses = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and self.type & socket.SOCK_STREAM:
            host = str(address[0])
            if not (host in own_addresses or host.startswith("127.") or host in ("localhost", "::1", "0.0.0.0")):
                raise OSError(f"a test tried to connect to {host}:{address[1]}; tests reach only this machine")
        connect(self, address)

    socket.socket.connect = guarded


_set_environment()
_refuse_the_outside()
settings.register_profile("stillroom", derandomize=True, deadline=None, database=None)
settings.load_profile("stillroom")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_SECONDS))


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """A test that changed the thread count must not change the sums of the next one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    yield


@pytest.fixture(scope="session")
def repository_root() -> Path:
    """The folder that holds pyproject.toml."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def benchmarks_root() -> Path:
    """The folder of benchmark files; skips without one."""
    named = os.environ.get("STILLROOM_BENCHMARKS")
    if not named:
        pytest.skip("STILLROOM_BENCHMARKS is not set: no benchmark files")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"STILLROOM_BENCHMARKS={named} is not a folder")
    return folder
