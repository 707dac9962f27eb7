"""Ends what a killed driver leaves of its private Ray cluster.

Ray's workers die with their driver within seconds, but some of its agents wait a minute for a server that is gone, and
the cluster's temporary folder stays. This child of the driver keeps note of the driver's descendants by pid and start
time (their titles and environments are not to be trusted: Ray rewrites both), waits for the driver's death, and clears
away what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

POLL_SECONDS = 1.0
GRACE_SECONDS = 3.0
"""Time that the driver's other children have to end by themselves."""


def start_guardian(folder: Path) -> subprocess.Popen[bytes]:
    """Start watching this process, whose private cluster has its files in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.guardian", str(os.getpid()), str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the driver's group must not end its guardian first
    )


def descendants(pid: int) -> set[psutil.Process]:
    """Living descendants, this process left out. psutil compares processes by pid and start time."""
    try:
        return set(psutil.Process(pid).children(recursive=True)) - {psutil.Process()}
    except psutil.Error:
        return set()


def main() -> None:
    """``python -m flows.guardian PARENT_PID FOLDER``."""
    parent, folder = int(sys.argv[1]), sys.argv[2]
    known: set[psutil.Process] = set()
    while os.getppid() == parent:
        known = {process for process in known if process.is_running()} | descendants(parent)
        time.sleep(POLL_SECONDS)
    time.sleep(GRACE_SECONDS)
    # A dying raylet may have started something after the last look.
    known |= {child for process in known for child in descendants(process.pid)}
    for process in known:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
