"""Locks on files. The kernel frees them when their holder dies, so none is ever left behind."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Generator
from pathlib import Path

POLL_SECONDS = 0.1


@contextlib.contextmanager
def hold(lock: Path, give_up: Callable[[], None] = lambda: None) -> Generator[None]:
    """Wait for and hold the lock; ``give_up`` is asked before each further wait and may raise."""
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                give_up()
                time.sleep(POLL_SECONDS)
        yield


def is_held(lock: Path) -> bool:
    """Whether a living process holds the lock; False for one that is not there."""
    try:
        # An exclusive lock over NFS wants a file open for writing.
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
