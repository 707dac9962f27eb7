"""A grading process that does as it is told: replies, spins, dies, runs out of memory, or raises."""

from __future__ import annotations

import os
import signal
from typing import Any

from evaluation.grading.serve import serve


def main() -> None:
    serve(lambda: _obey)


def _obey(request: dict[str, Any]) -> dict[str, Any]:
    order = request["do"]
    while order == "spin":
        pass
    if order == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if order == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "killed once" and not os.path.exists(request["mark"]):
        open(request["mark"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "raise":
        raise LookupError("no such rule")
    if order == "fill memory":
        return {"size": len(bytearray(8 << 30))}
    return {"pid": os.getpid()}
