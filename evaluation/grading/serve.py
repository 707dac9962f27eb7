"""The child's side of ``evaluation.grading.processes``: reads requests, limits itself, replies."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 1 << 30
"""Address space of a grading process; Math-Verify needs 70 MB of it for ordinary answers."""


def serve(load: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Replies to each line of standard input until it ends; ``load`` does the imports and returns the answerer.

    The answerer's exceptions become ``{"error": …}``. A request that outlives its ``cpu_seconds`` ends the process:
    SIGPROF's default action works in C code too. So does an orphan's last request; an idle orphan sees its input end.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        answer = load()
    except ImportError as error:
        _reply(replies, {"error": f"the grading process could not start: {error}"})
        return
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request.pop("cpu_seconds"))
        try:
            reply = answer(request)
        except Exception as error:  # whatever the grading library raises is a grader's failure, never a wrong answer
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(replies, reply)


def _reply(stream: Any, reply: dict[str, Any]) -> None:
    stream.write(json.dumps(reply) + "\n")
    stream.flush()
