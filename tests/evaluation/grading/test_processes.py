"""The pool of grading processes: limits, deaths, replacement, and nobody waiting for somebody else's request."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluation.grading.processes import GradingProcessDied, GradingTimeout, ProcessPool


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    made = ProcessPool("tests.evaluation.grading.ordered_worker", 2)
    yield made
    made.close()


def _pid(pool: ProcessPool) -> int:
    return pool.ask({"do": "reply"}, cpu_seconds=5)["pid"]


def test_a_child_is_kept_for_the_next_request(pool: ProcessPool) -> None:
    assert _pid(pool) == _pid(pool)


def test_a_request_that_spins_is_ended_by_its_processor_time_and_the_child_replaced(pool: ProcessPool) -> None:
    before = _pid(pool)
    started = time.process_time()
    with pytest.raises(GradingTimeout):
        pool.ask({"do": "spin"}, cpu_seconds=0.2)
    assert time.process_time() - started < 0.2, "the caller only waits"
    assert _pid(pool) != before


@pytest.mark.parametrize(("order", "crashed"), [("crash", True), ("killed", False)])
def test_a_child_that_dies_twice_on_a_request_is_reported_with_the_kind_of_its_death(
    pool: ProcessPool, order: str, crashed: bool
) -> None:
    with pytest.raises(GradingProcessDied) as died:
        pool.ask({"do": order}, cpu_seconds=5)
    assert died.value.crashed is crashed
    assert _pid(pool) > 0


def test_a_request_whose_child_is_killed_once_is_asked_again(pool: ProcessPool, tmp_path: Path) -> None:
    assert pool.ask({"do": "killed once", "mark": str(tmp_path / "mark")}, cpu_seconds=5)["pid"] > 0


def test_a_child_killed_while_it_was_idle_costs_nothing(pool: ProcessPool) -> None:
    os.kill(_pid(pool), signal.SIGKILL)
    assert _pid(pool) > 0


def test_what_the_answerer_raises_is_an_error_and_the_child_goes_on(pool: ProcessPool) -> None:
    before = _pid(pool)
    assert pool.ask({"do": "raise"}, cpu_seconds=5) == {"error": "LookupError: no such rule"}
    assert "MemoryError" in pool.ask({"do": "fill memory"}, cpu_seconds=5)["error"]
    assert _pid(pool) == before


def test_a_module_that_is_not_there_is_a_death_and_no_crash_of_an_answer() -> None:
    missing = ProcessPool("tests.evaluation.grading.no_such_worker", 1)
    with pytest.raises(GradingProcessDied):
        missing.ask({}, cpu_seconds=1)
    missing.close()


def test_slow_requests_do_not_hold_up_the_others() -> None:
    """One child spins; 60 requests of other threads are done by the other child meanwhile."""
    pool = ProcessPool("tests.evaluation.grading.ordered_worker", 2)
    with ThreadPoolExecutor(2) as warm:
        list(warm.map(lambda _: pool.ask({"do": "reply"}, cpu_seconds=5), range(2)))
    ended: list[str] = []

    def spin() -> None:
        with pytest.raises(GradingTimeout):
            pool.ask({"do": "spin"}, cpu_seconds=1)
        ended.append("slow")

    slow = threading.Thread(target=spin)
    slow.start()
    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(lambda _: pool.ask({"do": "reply"}, cpu_seconds=5), range(60)))
    ended.append("quick")
    slow.join()
    pool.close()
    assert ended == ["quick", "slow"] and len(replies) == 60


def test_descriptors_beyond_1024_are_no_trouble(pool: ProcessPool) -> None:
    """A server with many open files: select() would refuse its pipes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        fresh = ProcessPool("tests.evaluation.grading.ordered_worker", 1)
        assert _pid(fresh) > 0
        fresh.close()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
