"""The flow of one run: train a segment, evaluate it beside the next one, until the budget is spent."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run

from evaluation.results.records import RunEvent
from evaluation.results.spool import Spool
from flows.cluster import current, reason
from flows.run_folder import RunFolder
from flows.tasks import evaluate_segment, thread_pool, train_segment
from training.checkpoints import SegmentReport

EVALUATIONS_AT_ONCE = 4
"""Evaluations of one run that may wait for a worker side by side."""


@flow(
    name="experiment",
    flow_run_name="{run_id}",
    task_runner=thread_pool(EVALUATIONS_AT_ONCE),
    persist_result=False,
    validate_parameters=False,
)
def experiment(run_id: str, run_dir: str) -> None:
    """Do what is missing of one run. What is done is read from its folder, so any call resumes.

    Raises what the work raised, after recording it as the run's state.
    """
    folder = RunFolder(Path(run_dir))
    with folder.hold("run", give_up=current().refuse_if_stopping):
        if folder.finished():
            return
        attempt = folder.start_attempt()
        with Spool(folder.path, role="driver", attempt=attempt) as spool:
            spool.append(RunEvent(run_id, attempt * 2 - 1, "running", time.time(), details=_execution()))
            spool.flush()
            try:
                summary = _train_and_evaluate(folder, attempt)
            except BaseException as error:
                status = "stopped" if current().stopping else "failed"
                details = {"traceback": traceback.format_exc()}
                spool.append(RunEvent(run_id, attempt * 2, status, time.time(), reason(error), details))
                raise
            spool.append(RunEvent(run_id, attempt * 2, "done", time.time()))
            spool.flush()
            folder.finish(summary)


def _execution() -> dict[str, Any]:
    """Who runs this attempt: host, process, command, and its names in Prefect and Ray."""
    import ray

    context = ray.get_runtime_context() if ray.is_initialized() else None
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": sys.argv,
        "prefect_flow_run": flow_run.id,
        "ray_job": context.get_job_id() if context else None,
        "ray_node": context.get_node_id() if context else None,
    }


def _train_and_evaluate(folder: RunFolder, attempt: int) -> dict[str, Any]:
    run_id, run_dir = folder.run_id, str(folder.path)
    if folder.read().spec.method is None:
        if not folder.evaluated(0):
            evaluate_segment.submit(run_id, run_dir, None, attempt).result()
        return {"updates": 0}
    evaluations: dict[int, PrefectFuture[Any]] = {}
    segment, report = _done_before(folder, attempt, evaluations)
    with current().lease("training") as slot:
        while report is None or not report.finished:
            segment += 1
            report = SegmentReport(**train_segment(slot, run_id, run_dir, segment, attempt))
            if not folder.evaluated(report.last_update):
                evaluations[segment] = evaluate_segment.submit(run_id, run_dir, segment, attempt)
            _settle(folder, evaluations, wait=False)
    _settle(folder, evaluations, wait=True)
    return {"updates": report.last_update, "segments": segment, "cost": report.cost}


def _done_before(
    folder: RunFolder, attempt: int, evaluations: dict[int, PrefectFuture[Any]]
) -> tuple[int, SegmentReport | None]:
    """The segment that earlier attempts reached, with what they left to be evaluated under way."""
    report, last = None, folder.last_intact_segment()
    if last == 0:
        folder.restart(attempt)
    for segment in range(1, last + 1):
        earlier, report = report, folder.recorded_segment(segment)
        if report is not None and folder.evaluated(report.last_update):
            folder.release(segment)
        elif folder.has_checkpoint(segment):
            evaluations[segment] = evaluate_segment.submit(folder.run_id, str(folder.path), segment, attempt)
        else:  # damaged before it was evaluated: train it again
            return segment - 1, earlier
    return last, report


def _settle(folder: RunFolder, evaluations: dict[int, PrefectFuture[Any]], wait: bool) -> None:
    """Release the checkpoints whose evaluation is done; raise what an evaluation raised."""
    for segment, future in [*evaluations.items()]:
        if wait or future.state.is_final():
            future.result()
            folder.release(segment)
            del evaluations[segment]
