"""The flow of one run: train a segment, evaluate it beside the next one, until the budget is spent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture

from evaluation.results.records import RunEvent
from evaluation.results.spool import Spool
from flows.cluster import current
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
    with folder.hold("run"):
        if folder.finished():
            return
        attempt = folder.start_attempt()
        with Spool(folder.path, role="driver", attempt=attempt) as spool:
            spool.append(RunEvent(run_id, attempt * 2 - 1, "running", time.time()))
            spool.flush()
            try:
                summary = _train_and_evaluate(folder, attempt)
            except BaseException as error:
                status = "stopped" if current().stopping else "failed"
                spool.append(RunEvent(run_id, attempt * 2, status, time.time(), f"{type(error).__name__}: {error}"))
                raise
            spool.append(RunEvent(run_id, attempt * 2, "done", time.time()))
            spool.flush()
            folder.finish(summary)


def _train_and_evaluate(folder: RunFolder, attempt: int) -> dict[str, Any]:
    run_id, run_dir = folder.run_id, str(folder.path)
    evaluations: dict[int, PrefectFuture[Any]] = {}
    if folder.read().spec.method is None:
        if not folder.evaluated(0):
            evaluate_segment.submit(run_id, run_dir, None, attempt).result()
        return {"updates": 0}
    with current().lease("training") as slot:
        segment, report = 0, None
        while report is None or not report.finished:
            segment += 1
            report = folder.segment_report(segment)
            if report is None:
                report = SegmentReport(**train_segment(slot, run_id, run_dir, segment, attempt))
            if not folder.evaluated(report.last_update):
                evaluations[segment] = evaluate_segment.submit(run_id, run_dir, segment, attempt)
            _release_evaluated(folder, evaluations)
    for number, future in evaluations.items():
        future.result()
        folder.release(number)
    return {"updates": report.last_update, "segments": segment, "cost": report.cost}


def _release_evaluated(folder: RunFolder, evaluations: dict[int, PrefectFuture[Any]]) -> None:
    for number, future in evaluations.items():
        if future.state.is_completed():
            folder.release(number)
