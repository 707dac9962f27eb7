"""A plan from start to end: prepare, start Prefect and Ray only if something is missing, run, ingest."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from flows.environment import prepare_environment
from flows.plan import Plan
from flows.prepare import PreparedPlan, PreparedRun, prepare, record_plan
from flows.settings import Settings


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What a sweep did."""

    prepared: PreparedPlan
    done_before: int
    done_now: int
    failures: dict[str, str]
    """run_id -> error"""
    stopped: bool
    seconds: float


Notify = Callable[[str], None]
"""Told one line whenever the sweep enters another stage."""


def run_plan(
    plan: Plan,
    settings: Settings,
    notify: Notify,
    watch: Callable[[list[PreparedRun]], contextlib.AbstractContextManager[None]],
) -> StudyOutcome:
    """Run what is missing of a plan and bring the results up to date.

    ``watch`` is entered while runs are in progress and shows them. Raises PlanError before anything is started.
    """
    started = time.time()
    prepare_environment(settings.store)
    prepared = prepare(plan, settings)
    missing = prepared.missing()
    plan.resources.refuse_unmet(_trainers(plan, missing))
    record_plan(prepared, settings, started)
    failures: dict[str, str] = {}
    stopped = False
    if missing:
        with _ingestor(settings.store), _services(plan, missing, settings, notify):
            notify(f"{len(missing)} of {len(prepared.runs)} runs to do")
            with watch(missing):
                failures, stopped = _run(plan, missing)
    _bring_up_to_date(settings.store, notify)
    return StudyOutcome(
        prepared=prepared,
        done_before=len(prepared.runs) - len(missing),
        done_now=sum(run.folder.finished() for run in missing),
        failures=failures,
        stopped=stopped,
        seconds=time.time() - started,
    )


def _bring_up_to_date(store: Path, notify: Notify) -> None:
    """The last ingest. What stands in its way is said; the runs are done, and the last snapshot can be read."""
    from evaluation.results.ingest import ingest
    from evaluation.results.store import StoreBusyError, StoreDamagedError

    try:
        ingest(store, wait=INGEST_WAIT_SECONDS)
    except (StoreBusyError, StoreDamagedError) as error:
        notify(f"the results could not be brought up to date: {error}; then run `stillroom ingest`")


INGEST_WAIT_SECONDS = 120.0
"""How long to wait for another ingestor to let go of the database."""


def _trainers(plan: Plan, missing: list[PreparedRun]) -> int:
    return plan.resources.trainers_for(sum(run.cell.spec.method is not None for run in missing))


@contextlib.contextmanager
def _ingestor(store: Path) -> Generator[None]:
    """Keeps the snapshot fresh while the study runs; a process of its own, ended with the block."""
    log = store / "logs" / "ingest.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "evaluation.results.ingest", str(store), "--follow"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--parent-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches the terminal's whole group; the driver ends this child in order
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=INGEST_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _services(plan: Plan, missing: list[PreparedRun], settings: Settings, notify: Notify) -> Generator[None]:
    """Prefect's server and Ray, started side by side."""
    from flows.cluster import cluster
    from flows.server import prefect_server

    notify("starting Prefect and Ray")
    trainers = _trainers(plan, missing)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(max_workers=1) as side:
        # The server's start is mostly waiting for a child process, so Ray starts meanwhile.
        server = prefect_server(settings.store / "logs" / "prefect.log")
        up = side.submit(server.__enter__)
        try:
            stack.enter_context(cluster(plan.resources, trainers, plan.compute.threads))
        finally:
            up.result()
            stack.push(server.__exit__)
        yield


def _run(plan: Plan, missing: list[PreparedRun]) -> tuple[dict[str, str], bool]:
    from flows.cluster import current
    from flows.study import study

    workers = current().trainers + 1
    outcome = study(plan.name, workers, [(run.run_id, str(run.folder.path)) for run in missing])
    return outcome, current().stopping
