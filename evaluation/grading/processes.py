"""Grading in child processes that can be killed: one request a line, one reply a line.

A grader that may hang (symbolic algebra) cannot be interrupted inside its own process, and alarms work in main
threads only. So it runs in children started by ``exec`` (no fork of a process with threads, no re-import of the
caller's main module), which serve calls from any thread, Ray workers included. Each child limits its own processor
time per request: the kernel ends it in mid-computation, and a new one takes its place.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
"""Longest wait for a child to import what it needs."""

WALL_FACTOR = 20.0
"""Wall-clock limit of a request as a multiple of its processor limit: a last resort on an overloaded machine."""


class GradingTimeout(Exception):
    """The request used up its processor time."""


class GradingStalled(Exception):
    """No reply within the wall-clock limit although processor time was left: the machine's fault."""


class GradingProcessDied(Exception):
    """The child could not start, was killed from outside, or (``crashed``) ended by itself without a reply."""

    def __init__(self, message: str, *, crashed: bool = False) -> None:
        super().__init__(message)
        self.crashed = crashed


class _Child:
    """One child process."""

    def __init__(self, module: str) -> None:
        root = Path(__file__).resolve().parents[2]
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self.pending = b""

    def start(self) -> None:
        """Waits until the child has imported what it needs."""
        ready = self._read(START_SECONDS)
        if ready.get("error"):
            raise GradingProcessDied(ready["error"])

    def ask(self, request: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
        line = json.dumps({**request, "cpu_seconds": cpu_seconds}) + "\n"
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise GradingProcessDied("the grading process had ended before the request") from None
        return self._read(cpu_seconds * WALL_FACTOR)

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        descriptor, deadline = self.process.stdout.fileno(), time.monotonic() + seconds
        poll = select.poll()  # not select(), which refuses descriptors from 1024 on
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self.pending:
            if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                raise GradingStalled(f"no reply after {seconds:g} s")
            received = os.read(descriptor, 1 << 16)
            if not received:
                self._explain_end()
            self.pending += received
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def _explain_end(self) -> None:
        code = self.process.wait()
        if code == -signal.SIGPROF:
            raise GradingTimeout("the processor time allowed was used up")
        crashed = code not in (-signal.SIGKILL, -signal.SIGTERM)
        raise GradingProcessDied(f"the grading process ended with code {code}", crashed=crashed)

    def close(self) -> None:
        """Kills the child and everything it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class ProcessPool:
    """At most ``size`` children running ``module.main``, started on first use, closed at exit.

    ``ask`` may be called from any thread; it waits for a free child. After a time-out or a death the child is
    replaced. A forked copy of the owner starts children of its own.
    """

    def __init__(self, module: str, size: int) -> None:
        self.module, self.size = module, size
        self._reset()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.places: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        for _ in range(self.size):
            self.places.put(None)

    @contextmanager
    def _child(self) -> Generator[_Child]:
        child = self.places.get()
        try:
            if child is None:
                child = _Child(self.module)
                child.start()
            yield child
        except BaseException:
            if child is not None:
                child.close()
            child = None
            raise
        finally:
            self.places.put(child)

    def ask(self, request: dict[str, Any], *, cpu_seconds: float) -> dict[str, Any]:
        """The child's reply. Raises GradingTimeout, GradingStalled or GradingProcessDied.

        A request whose child died is asked once more: what ended an idle child, or one that the system killed for
        memory, says nothing about the request.
        """
        try:
            return self._ask(request, cpu_seconds)
        except GradingProcessDied:
            return self._ask(request, cpu_seconds)

    def _ask(self, request: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
        with self._child() as child:
            return child.ask(request, cpu_seconds)

    def close(self) -> None:
        """Ends every idle child; the pool may be used again."""
        emptied = 0
        while True:
            try:
                child = self.places.get_nowait()
            except queue.Empty:
                break
            emptied += 1
            if child is not None:
                child.close()
        for _ in range(emptied):
            self.places.put(None)
