"""A real study through Prefect and Ray: where it ran, that nothing is done twice, and that death changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.study import (
    RUNS,
    SEGMENTS_OF_A_RUN,
    ask,
    environment,
    kill,
    lines,
    start,
    stillroom,
    wait_until,
    write_plan,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("study")]

ANSWERS = """
    select a.run_id, a.update, a.problem_id, a.sample_index, a.completion_tokens, a.verdict, a.extracted
    from graded_answers a order by all
"""
STEPS = """
    select run_id, update, name, value from latest_steps
    where name not like 't\\_%' escape '\\' order by all
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, str]]:
    """An uninterrupted study: its plan, its store, what it printed."""
    folder = tmp_path_factory.mktemp("study")
    plan, store = write_plan(folder), folder / "store"
    done = stillroom("sweep", str(plan), store=store)
    assert done.returncode == 0, done.stdout + done.stderr
    yield plan, store, done.stdout


def test_the_table_has_every_cell_and_says_what_was_done(study: tuple[Path, Path, str]) -> None:
    _, _, printed = study
    for word in ("Base", "OPSD", "GRPO", f"{RUNS} runs done now", "stillroom dashboard"):
        assert word in printed


def test_all_work_ran_in_ray_workers_and_not_in_the_driver(study: tuple[Path, Path, str]) -> None:
    _, store, _ = study
    rows = ask(store, "select role, pid, kinds from processes")
    pids = {role: {row["pid"] for row in rows if row["role"] == role} for role in ("driver", "trainer", "evaluator")}
    assert len(pids["driver"]) == 1
    assert pids["trainer"] and pids["evaluator"]
    assert not pids["driver"] & (pids["trainer"] | pids["evaluator"])
    assert not pids["trainer"] & pids["evaluator"]
    kinds = {role: {kind for row in rows if row["role"] == role for kind in row["kinds"]} for role in pids}
    assert {"step", "rollout"} <= kinds["trainer"]
    assert {"answer", "grade", "evaluation"} <= kinds["evaluator"]
    assert not kinds["driver"] & {"step", "rollout", "answer", "grade"}


def test_prefect_lists_every_segment_and_evaluation(study: tuple[Path, Path, str]) -> None:
    _, store, _ = study
    code = """
import sys; from pathlib import Path
from flows.environment import prepare_environment
store = Path(sys.argv[1]); prepare_environment(store)
from flows.server import prefect_server
with prefect_server(store / "logs" / "again.log"):
    from prefect.client.orchestration import get_client
    with get_client(sync_client=True) as client:
        for run in client.read_task_runs(limit=200):
            print(run.name, "|", run.state.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(store)], capture_output=True, text=True, timeout=200, env=environment(store)
    )
    assert done.returncode == 0, done.stderr
    listed = dict(line.split(" | ") for line in done.stdout.splitlines() if " | " in line)
    trained = [row["run_id"] for row in ask(store, "select run_id from latest_runs where method <> 'base'")]
    assert len(trained) == RUNS - 1
    for run_id in trained:
        for segment in range(1, SEGMENTS_OF_A_RUN + 1):
            assert listed[f"{run_id} segment {segment}"] == "Completed"
            assert listed[f"{run_id} evaluate segment {segment}"] == "Completed"


def test_a_second_time_nothing_is_started(study: tuple[Path, Path, str]) -> None:
    plan, store, _ = study
    before = len(lines(store))
    done = stillroom("sweep", str(plan), store=store)
    assert done.returncode == 0, done.stderr
    assert f"0 runs done now, {RUNS} were done before" in done.stdout
    assert "starting Prefect and Ray" not in done.stdout
    assert len(lines(store)) == before


def test_the_same_study_again_gives_the_same_numbers(study: tuple[Path, Path, str], tmp_path: Path) -> None:
    plan, store, _ = study
    again = tmp_path / "store"
    assert stillroom("sweep", str(plan), store=again).returncode == 0
    assert ask(again, ANSWERS) == ask(store, ANSWERS)
    assert ask(again, STEPS) == ask(store, STEPS)


@pytest.mark.parametrize("moment", ["first segment done", "in the middle of a later segment"])
def test_a_killed_driver_loses_and_repeats_nothing(study: tuple[Path, Path, str], tmp_path: Path, moment: str) -> None:
    plan, reference, _ = study
    store = tmp_path / "store"
    victim = start("sweep", str(plan), store=store, log=tmp_path / "first.log")

    def reached() -> bool:
        if moment == "first segment done":
            return any(store.glob("runs/opsd-*/segments/1.json"))
        return any(line["kind"] == "step" and line["data"]["update"] == 5 for line in _whole_lines(store))

    wait_until(reached, 200, moment)
    children = psutil.Process(victim.pid).children(recursive=True)
    kill(victim)
    wait_until(lambda: not any(_alive(child) for child in children), 20, "every process of the study gone")
    done_before = {file: file.stat().st_mtime_ns for file in store.glob("runs/*/segments/*.json")}
    assert done_before
    resumed = stillroom("sweep", str(plan), store=store)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert {file: file.stat().st_mtime_ns for file in done_before} == done_before
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)
    assert ask(store, STEPS) == ask(reference, STEPS)
    doubled = ask(
        store,
        "select run_id, update, name from latest_steps group by all having count(*) > 1 union all "
        "select run_id, update, problem_id from latest_answers group by all having count(*) > 1",
    )
    assert doubled == []


@pytest.mark.parametrize("how", ["SIGTERM to the driver", "Ctrl-C in its terminal"])
def test_interrupt_stops_everything_and_the_same_command_goes_on(
    study: tuple[Path, Path, str], tmp_path: Path, how: str
) -> None:
    plan, reference, _ = study
    store, log = tmp_path / "store", tmp_path / "first.log"
    driver = start("sweep", str(plan), store=store, log=log)
    wait_until(lambda: any(store.glob("runs/opsd-*/segments/1.json")), 200, "first segment done")
    children = psutil.Process(driver.pid).children(recursive=True)
    if how.startswith("SIGTERM"):
        driver.terminate()
    else:
        os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(timeout=90) == 1, log.read_text()
    wait_until(lambda: not any(_alive(child) for child in children), 20, "every process of the study gone")
    assert "The same command goes on from here" in log.read_text()
    assert stillroom("sweep", str(plan), store=store).returncode == 0
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)


@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare (util-linux) for a namespace"
)
def test_a_study_needs_the_loopback_interface_only(study: tuple[Path, Path, str], tmp_path: Path) -> None:
    plan, reference, _ = study
    store = tmp_path / "store"
    command = f"ip link set lo up && exec {sys.executable} -m flows.cli sweep {plan}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(store),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)


def test_a_killed_worker_is_replaced(study: tuple[Path, Path, str], tmp_path: Path) -> None:
    plan, reference, _ = study
    store, log = tmp_path / "store", tmp_path / "log"
    driver = start("sweep", str(plan), store=store, log=log)
    wait_until(lambda: any(line["role"] == "trainer" for line in _whole_lines(store)), 200, "a trainer at work")
    trainer = next(line["pid"] for line in _whole_lines(store) if line["role"] == "trainer")
    os.kill(trainer, signal.SIGKILL)
    assert driver.wait(timeout=280) == 0, log.read_text()
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)
    assert ask(store, STEPS) == ask(reference, STEPS)


def test_a_killed_prefect_server_is_started_again(study: tuple[Path, Path, str], tmp_path: Path) -> None:
    plan, reference, _ = study
    store, log = tmp_path / "store", tmp_path / "log"
    driver = start("sweep", str(plan), store=store, log=log)
    wait_until(lambda: any(store.glob("runs/opsd-*/segments/1.json")), 200, "first segment done")
    (server,) = [c for c in psutil.Process(driver.pid).children() if "flows.server" in c.cmdline()]
    server.kill()
    assert driver.wait(timeout=280) == 0, log.read_text()
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)


def _whole_lines(store: Path) -> list[dict[str, Any]]:
    found = []
    for file in store.glob("runs/opsd-*/spool/*.jsonl"):
        text = file.read_text()
        found += [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return found


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
