"""Thin Prefect tasks: each asks one Ray worker for one piece of work. Prefect alone retries."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task

from flows.cluster import WorkerSlot, current, infrastructure_faults

RETRIES = 2
RETRY_DELAY_SECONDS = 1.0


def is_infrastructure_fault(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether a process or node died under the work; anything the work itself raised would only raise again."""
    outcome = state.result(raise_on_failure=False)
    return isinstance(outcome, infrastructure_faults()) and not current().stopping


def thread_pool(workers: int) -> Any:
    """Threads for tasks that wait for Ray. (Prefect's annotations do not accept its own task runner.)"""
    return ThreadPoolTaskRunner(max_workers=workers)


def _work(name: str, run_name: str) -> Any:
    return task(
        name=name,
        task_run_name=run_name,
        retries=RETRIES,
        retry_delay_seconds=RETRY_DELAY_SECONDS,
        retry_condition_fn=is_infrastructure_fault,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


@_work("train segment", "{run_id} segment {segment}")
def train_segment(slot: WorkerSlot, run_id: str, run_dir: str, segment: int, attempt: int) -> dict[str, Any]:
    """The updates between two evaluations, on the run's own worker."""
    return slot.call("run_segment", run_dir, segment, attempt)


@_work("evaluate", "{run_id} evaluate segment {segment}")
def evaluate_segment(run_id: str, run_dir: str, segment: int | None, attempt: int) -> dict[str, Any]:
    """Answers and grades with the checkpoint of a segment, on whichever evaluation worker is free."""
    with current().lease("evaluation") as slot:
        return slot.call("evaluate", run_dir, segment, attempt)
