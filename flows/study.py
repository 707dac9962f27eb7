"""The flow of one study: its runs side by side, each isolated from the others' failures."""

from __future__ import annotations

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE

from flows.experiment import experiment
from flows.tasks import thread_pool


@task(name="run", task_run_name="{run_id}", cache_policy=NO_CACHE, persist_result=False)
def _run(run_id: str, run_dir: str) -> None:
    experiment(run_id, run_dir)


@flow(name="study", flow_run_name="{name}", persist_result=False, validate_parameters=False)
def _study(name: str, runs: list[tuple[str, str]]) -> dict[str, str]:
    with tags(f"study:{name}"):
        futures = {run_id: _run.submit(run_id, run_dir) for run_id, run_dir in runs}
        for future in futures.values():
            future.wait()
    failures = {}
    for run_id, future in futures.items():
        if not future.state.is_completed():
            failures[run_id] = str(future.state.message or future.state.name)
    return failures


def study(name: str, workers: int, runs: list[tuple[str, str]]) -> dict[str, str]:
    """Run ``runs`` (id, folder), at most ``workers`` at a time; the errors of those that failed, by id."""
    return _study.with_options(task_runner=thread_pool(workers))(name, runs)
