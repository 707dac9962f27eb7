"""Ray for one driver: a cluster of its own or a given one, and warm workers in it."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import shutil
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from flows.environment import worker_environment
from flows.errors import StudyError
from flows.guardian import start_guardian
from flows.plan_spec import Resources

Role = Literal["training", "evaluation"]

START_TRIES = 3

START_TIMEOUT_SECONDS = 120.0
"""How long a worker may take to appear before the request is called unmet."""


class PlacementError(StudyError):
    """The cluster cannot give what the plan asks for."""


def infrastructure_faults() -> tuple[type[Exception], ...]:
    """What Ray raises when a process or node died under the work; the work itself is not to blame."""
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError

    return (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError)


def reason(error: BaseException) -> str:
    """What went wrong, in one line: of an error that crossed a process the original, without its stack."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {(str(cause).strip() or 'no message').splitlines()[0]}"


class Interrupted(RuntimeError):
    """The user asked to stop."""


@dataclass
class WorkerSlot:
    """A place for one worker process; the process is started on first use and replaced after its death."""

    role: Role
    cpus: float
    gpus: float
    threads: int
    actor: Any = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Run one method on the worker and wait. A dead worker is forgotten, so that the next call starts another."""
        import ray

        current().refuse_if_stopping()
        if self.actor is None:
            self.actor = self._start()
            if current().stopping:  # asked for while the worker was starting
                self.stop()
                current().refuse_if_stopping()
        try:
            return ray.get(getattr(self.actor, method).remote(*arguments))
        except infrastructure_faults():
            self.actor = None
            raise

    def _start(self) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError

        from flows.workers import WORKERS

        actor: Any = (
            ray.remote(WORKERS[self.role])
            .options(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_restarts=0,
                max_task_retries=0,
                runtime_env={"env_vars": worker_environment(self.threads)},
            )
            .remote()
        )
        try:
            ray.get(actor.ready.remote(), timeout=START_TIMEOUT_SECONDS)
        except GetTimeoutError as error:
            ray.kill(actor)
            raise PlacementError(
                f"no place for a {self.role} worker with {self.cpus:g} CPUs within {START_TIMEOUT_SECONDS:.0f} s; "
                f"the cluster has {ray.cluster_resources().get('CPU', 0):g} CPUs, "
                f"{ray.available_resources().get('CPU', 0):g} of them free: lower resources in the plan"
            ) from error
        return actor

    def stop(self) -> None:
        import ray

        if self.actor is not None:
            ray.kill(self.actor)
            self.actor = None


@dataclass
class Cluster:
    """Pools of warm workers. A slot serves one caller at a time."""

    resources: Resources
    trainers: int
    threads: int
    stopping: bool = False
    """Set once the user has asked to stop: work that fails from then on is neither retried nor called failed."""
    _free: dict[Role, queue.Queue[WorkerSlot]] = field(default_factory=dict)
    _slots: list[WorkerSlot] = field(default_factory=list)

    def __post_init__(self) -> None:
        wanted = self.resources
        self._add("training", self.trainers, wanted.cpus_per_trainer, wanted.gpus_per_trainer)
        self._add("evaluation", wanted.evaluators, wanted.cpus_per_evaluator, wanted.gpus_per_evaluator)

    def _add(self, role: Role, count: int, cpus: float, gpus: float) -> None:
        slots = [WorkerSlot(role, cpus, gpus, self.threads) for _ in range(count)]
        self._slots.extend(slots)
        self._free[role] = queue.Queue()
        for slot in slots:
            self._free[role].put(slot)

    @contextlib.contextmanager
    def lease(self, role: Role) -> Generator[WorkerSlot]:
        """One worker of ``role`` for as long as the block runs; waits until one is free."""
        slot = self._free[role].get()
        try:
            yield slot
        finally:
            self._free[role].put(slot)

    def stop(self) -> None:
        for slot in self._slots:
            slot.stop()

    def refuse_if_stopping(self) -> None:
        if self.stopping:
            raise Interrupted("stopped on request; the same command goes on from here")

    def interrupt(self) -> None:
        """End all work now; callers that wait for a worker get an error at once."""
        self.stopping = True
        self.stop()


_current: Cluster | None = None


def current() -> Cluster:
    """The cluster of this process; flows reach it here because Prefect's parameters must be plain values."""
    if _current is None:
        raise RuntimeError("no cluster is running in this process: enter flows.cluster.cluster() first")
    return _current


@contextlib.contextmanager
def cluster(resources: Resources, trainers: int, threads: int) -> Generator[Cluster]:
    """Start a private Ray (or join ``resources.ray_address``), and end only what was started here."""
    global _current
    with _private_ray(resources) if resources.ray_address == "local" else _joined_ray(resources.ray_address):
        import ray

        _require(ray.cluster_resources(), resources, trainers)
        _current = Cluster(resources, trainers, threads)
        try:
            yield _current
        finally:
            _current.stop()
            _current = None


@contextlib.contextmanager
def _private_ray(resources: Resources) -> Generator[None]:
    # Unix sockets live in this folder and their paths are limited to about 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="still-"))
    guardian = start_guardian(folder)
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    try:
        _start(resources, folder)
        yield
    finally:
        ray.shutdown()
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            os.environ.pop(name, None)
        guardian.terminate()
        guardian.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(resources: Resources, folder: Path) -> None:
    """Ray gives its node 30 s to start, which a busy machine can exceed: then it is tried again."""
    import ray

    for tries in range(1, START_TRIES + 1):
        try:
            ray.init(
                address="local",
                num_cpus=max(resources.cpus, 1),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(folder / str(tries)),
            )
            return
        except Exception as error:  # a node that is late raises no narrower class
            ray.shutdown()
            if tries == START_TRIES:
                raise StudyError(f"Ray did not start in {START_TRIES} tries: {reason(error)}") from error


@contextlib.contextmanager
def _joined_ray(address: str) -> Generator[None]:
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _require(offered: Mapping[str, float], resources: Resources, trainers: int) -> None:
    asked = {
        "CPU": trainers * resources.cpus_per_trainer + resources.evaluators * resources.cpus_per_evaluator,
        "GPU": trainers * resources.gpus_per_trainer + resources.evaluators * resources.gpus_per_evaluator,
    }
    for kind, amount in asked.items():
        if amount > offered.get(kind, 0.0):
            raise PlacementError(
                f"the plan's resources ask for {amount:g} {kind}s ({trainers} trainers, {resources.evaluators} "
                f"evaluators) and the cluster has {offered.get(kind, 0.0):g}: lower resources in the plan"
            )
