"""The flow of one study: its runs side by side, each isolated from the others' failures."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE

from flows.cluster import current, reason
from flows.experiment import experiment
from flows.tasks import thread_pool


@task(name="run", task_run_name="{run_id}", cache_policy=NO_CACHE, persist_result=False)
def _run(run_id: str, run_dir: str) -> None:
    experiment(run_id, run_dir)


@flow(name="study", flow_run_name="{name}", persist_result=False, validate_parameters=False)
def _study(name: str, runs: list[tuple[str, str]]) -> dict[str, str]:
    with _stop_on_signals(), tags(f"study:{name}"):
        futures = {run_id: _run.submit(run_id, run_dir) for run_id, run_dir in runs}
        for future in futures.values():
            future.wait()
    failures = {}
    for run_id, future in futures.items():
        outcome = future.state.result(raise_on_failure=False)
        if isinstance(outcome, BaseException):
            failures[run_id] = reason(outcome)
    return failures


@contextlib.contextmanager
def _stop_on_signals() -> Generator[None]:
    """Ctrl-C and SIGTERM end the workers first, so that every waiting thread returns; nothing saved is lost.

    Set inside the flow: Prefect's own handler, set on its way in, raises in this thread and waits for the others.
    """

    def stop(number: int, frame: object) -> None:
        current().interrupt()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def study(name: str, workers: int, runs: list[tuple[str, str]]) -> dict[str, str]:
    """Run ``runs`` (id, folder), at most ``workers`` at a time; the errors of those that failed, by id."""
    return _study.with_options(task_runner=thread_pool(workers))(name, runs)
