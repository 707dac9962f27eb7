"""A plan from start to end: prepare, start Prefect and Ray only if something is missing, run, ingest."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from flows.environment import prepare_environment
from flows.plan_spec import Plan
from flows.prepare import Checked, PreparedPlan, PreparedRun, prepare, record_plan
from flows.settings import Settings


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What a sweep did."""

    prepared: PreparedPlan
    done_before: int
    done_now: int
    failures: dict[str, str]
    """run_id -> error, of runs of the table; label -> reason, of rows that tuning could choose nothing for"""
    stopped: bool
    seconds: float
    trials_before: int = 0
    trials_now: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    """run_id -> error, of trials"""


Notify = Callable[[str], None]
"""Told one line whenever the sweep enters another stage."""

Watch = Callable[[list[PreparedRun]], contextlib.AbstractContextManager[None]]
"""Entered while runs are in progress; shows them."""


def run_plan(plan: Plan, settings: Settings, notify: Notify, watch: Watch) -> StudyOutcome:
    """Run what is missing of a plan and bring the results up to date.

    Of a tuned plan the trials run first, with the runs that need no choice beside them; then settings are chosen and
    the rest runs. Raises PlanError before anything is started.
    """
    started = time.time()
    prepare_environment(settings.store)
    checked = Checked(settings)
    prepared = prepare(plan, settings, checked=checked)
    missing = prepared.missing()
    plan.resources.refuse_unmet(_trainers(plan, prepared))
    record_plan(prepared, settings, started)
    _notify_choices(prepared, notify)
    attempted = {run.run_id: run for run in missing}
    failures: dict[str, str] = {}
    stopped = False
    if missing:
        with _ingestor(settings.store), _services(plan, prepared, settings, notify):
            failures, stopped = _round(plan, prepared, missing, notify, watch)
            if prepared.waiting and not stopped:
                prepared = prepare(plan, settings, gave_up=lambda path: path.name in attempted, checked=checked)
                record_plan(prepared, settings, started)
                _notify_choices(prepared, notify)
                # What has just failed is not tried again in the same sweep.
                chosen = [run for run in prepared.missing() if run.run_id not in attempted]
                attempted |= {run.run_id: run for run in chosen}
                if chosen:
                    more, stopped = _round(plan, prepared, chosen, notify, watch)
                    failures |= more
    _bring_up_to_date(settings.store, notify)
    return _outcome(prepared, attempted, failures, stopped, time.time() - started)


def run_prepared(prepared: PreparedPlan, settings: Settings, notify: Notify, watch: Watch) -> dict[str, str]:
    """Run what is missing of runs that wait for no choice, and bring the results up to date; the errors by run."""
    record_plan(prepared, settings, time.time())
    missing = prepared.missing()
    failures: dict[str, str] = {}
    if missing:
        with _ingestor(settings.store), _services(prepared.plan, prepared, settings, notify):
            failures, _ = _round(prepared.plan, prepared, missing, notify, watch)
    _bring_up_to_date(settings.store, notify)
    return failures


def _outcome(
    prepared: PreparedPlan, attempted: dict[str, PreparedRun], failures: dict[str, str], stopped: bool, seconds: float
) -> StudyOutcome:
    trials, runs = ({run.run_id for run in group} for group in (prepared.trials, prepared.runs))
    done_now = {run_id for run_id, run in attempted.items() if run.folder.finished()}
    return StudyOutcome(
        prepared=prepared,
        done_before=len(runs - {*attempted}),
        done_now=len(runs & done_now),
        failures={key: error for key, error in failures.items() if key not in trials} | dict(prepared.refused),
        stopped=stopped,
        seconds=seconds,
        trials_before=len(trials - {*attempted}),
        trials_now=len(trials & done_now),
        lost={key: error for key, error in failures.items() if key in trials},
    )


def _round(
    plan: Plan, prepared: PreparedPlan, missing: list[PreparedRun], notify: Notify, watch: Watch
) -> tuple[dict[str, str], bool]:
    """Run ``missing`` side by side; the errors by run, and whether the study was stopped on request."""
    trials = sum(run.cell.trial_of is not None for run in missing)
    total = len({run.run_id for run in prepared.runs}) + len(prepared.waiting)
    text = f"{len(missing) - trials} of {total} runs to do"
    if trials:
        text = f"{trials} of {len(prepared.trials)} tuning trials and {text}"
    elif prepared.plan.tuning is not None:
        text = f"settings are chosen: {text}"
    notify(f"{text}, {len(prepared.waiting)} wait for the trials" if prepared.waiting else text)
    with watch(missing):
        return _run(plan, missing)


def _notify_choices(prepared: PreparedPlan, notify: Notify) -> None:
    """One line a tuned row whose settings are known."""
    for label, choice in prepared.choices.items():
        values = ", ".join(f"{path}={value}" for path, value in choice.values.items())
        notify(f"tuning: {label}: {values} ({choice.score:.3f}, the best of {len(choice.trials)} trials)")
    for reason in prepared.refused.values():
        notify(f"tuning: {reason}")


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


def _trainers(plan: Plan, prepared: PreparedPlan) -> int:
    """Enough for the larger of the two rounds."""
    training = sum(run.cell.spec.method is not None for run in prepared.missing())
    return plan.resources.trainers_for(max(training, len(prepared.waiting)))


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
def _services(plan: Plan, prepared: PreparedPlan, settings: Settings, notify: Notify) -> Generator[None]:
    """Prefect's server and Ray, started side by side."""
    from flows.cluster import cluster
    from flows.server import prefect_server

    notify("starting Prefect and Ray")
    trainers = _trainers(plan, prepared)
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
