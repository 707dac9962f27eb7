"""How many answers are graded at once."""

from __future__ import annotations

import os

SETTING = "STILLROOM_GRADING_WORKERS"
"""Environment variable; without it, one worker for each usable core, at most ``MOST``."""

MOST = 8


def grading_workers() -> int:
    """Threads that wait for grades, and grading processes that compute them, of one calling process.

    Raises ValueError when the setting is no positive whole number.
    """
    given = os.environ.get(SETTING)
    if given is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, MOST)
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"{SETTING}={given!r}: give the number of answers to grade at once, 1 or more")
    return int(given)
