"""A tuned study from start to end: two rates for each of two methods, a control that follows, death in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.study import TUNED_PLAN, ask, kill, lines, start, stillroom, wait_until, write_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("study")]

TRIALS, RUNS = 4, 4
ANSWERS = """
    select a.run_id, a.update, a.problem_id, a.sample_index, a.completion_tokens, a.verdict, a.extracted
    from graded_answers a order by all
"""
CHOICES = "select label, tuning from plan_cells where plan = 'tuned' order by position"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, str]]:
    """An uninterrupted study: its plan, its store, what it printed."""
    folder = tmp_path_factory.mktemp("tuned")
    plan, store = write_plan(folder, TUNED_PLAN), folder / "store"
    done = stillroom("sweep", str(plan), store=store)
    assert done.returncode == 0, done.stdout + done.stderr
    yield plan, store, done.stdout


def test_trials_come_first_and_the_table_has_the_chosen_rates(study: tuple[Path, Path, str]) -> None:
    _, store, printed = study
    assert f"{TRIALS} of {TRIALS} tuning trials and 1 of {RUNS} runs to do, 3 wait for the trials" in printed
    assert f"{TRIALS} tuning trials and {RUNS} runs done now" in printed
    for words in ("tuned: tuning trials, validation split", "tuned: full cost", "tuned: accuracy on addition, test"):
        assert words in printed
    trials = ask(store, "select label, axes, accuracy, is_chosen from tuning_trials order by position")
    assert [trial["label"] for trial in trials] == ["SFT", "SFT", "OPSD", "OPSD"]
    rates = {label: _best(trials, label) for label in ("SFT", "OPSD")}
    for label, leader in (("SFT", "SFT"), ("OPSD", "OPSD"), ("wrong hint", "OPSD")):
        spec = json.loads(
            ask(store, f"select spec from latest_runs join plan_cells using (run_id) where label = '{label}'")[0][
                "spec"
            ]
        )
        (phase,) = spec["method"]["phases"].values()
        assert phase["optimiser"]["learning_rate"] == rates[leader]
        assert spec["evaluation"]["split"] == "test" and spec["seed"] == 0
    assert [trial["is_chosen"] for trial in trials] == [
        json.loads(trial["axes"])["learning_rate"] == rates[trial["label"]] for trial in trials
    ]


def _best(trials: list[dict[str, Any]], label: str) -> float:
    own = [
        (-trial["accuracy"], json.loads(trial["axes"])["learning_rate"]) for trial in trials if trial["label"] == label
    ]
    return min(own)[1]


def test_compare_shows_runs_trials_and_costs_apart(study: tuple[Path, Path, str]) -> None:
    _, store, _ = study
    table = json.loads(stillroom("compare", "--json", store=store).stdout)
    assert [(row["label"], row["n_seeds"]) for row in table["rows"]] == [
        ("Base", 1), ("SFT", 1), ("OPSD", 1), ("wrong hint", 1),
    ]  # fmt: skip
    trials = json.loads(stillroom("compare", "tuned", "--tuning", "--json", store=store).stdout)
    assert [(row["label"], row["n_done"]) for row in trials] == [("SFT", 1), ("SFT", 1), ("OPSD", 1), ("OPSD", 1)]
    costs = json.loads(stillroom("compare", "--cost", "--json", store=store).stdout)
    assert [(row["label"], row["is_tuning"], row["runs"]) for row in costs] == [
        ("Base", False, 1), ("SFT", False, 1), ("SFT", True, 2), ("OPSD", False, 1), ("OPSD", True, 2),
        ("wrong hint", False, 1),
    ]  # fmt: skip
    assert costs[2]["reference_tokens"] == costs[2]["trained_tokens"] > costs[1]["trained_tokens"] > 0
    assert costs[4]["rollout_tokens"] > costs[3]["rollout_tokens"] > 0
    assert {row["auxiliary_tokens"] for row in costs} == {0}
    refused = stillroom("compare", "--cost", "--tuning", store=store)
    assert refused.returncode == 2 and "one at a time" in refused.stderr


def test_a_second_time_nothing_is_started(study: tuple[Path, Path, str]) -> None:
    plan, store, _ = study
    before = len(lines(store))
    done = stillroom("sweep", str(plan), store=store)
    assert done.returncode == 0, done.stderr
    assert f"0 tuning trials and 0 runs done now, {TRIALS} and {RUNS} were done before" in done.stdout
    assert "starting Prefect and Ray" not in done.stdout
    assert len(lines(store)) == before
    listed = stillroom("sweep", str(plan), "--dry-run", store=store)
    assert f"0 of {TRIALS} tuning trials and 0 of {RUNS} runs to do" in listed.stdout
    states = [row["state"] for row in json.loads(stillroom("status", "tuned", "--json", store=store).stdout)]
    assert states == ["done"] * (TRIALS + RUNS)


@pytest.mark.parametrize("moment", ["a trial done", pytest.param("all trials done", marks=pytest.mark.drill)])
def test_a_killed_driver_chooses_the_same(study: tuple[Path, Path, str], tmp_path: Path, moment: str) -> None:
    plan, reference, _ = study
    store = tmp_path / "store"
    wanted = TRIALS if moment == "all trials done" else 1
    victim = start("sweep", str(plan), store=store, log=tmp_path / "first.log")
    wait_until(lambda: len([*store.glob("runs/*-s100-*/finished.json")]) >= wanted, 250, moment)
    children = psutil.Process(victim.pid).children(recursive=True)
    kill(victim)
    wait_until(lambda: not any(_alive(child) for child in children), 20, "every process of the study gone")
    assert len([*store.glob("runs/*-s0-*/finished.json")]) < RUNS
    resumed = stillroom("sweep", str(plan), store=store)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert ask(store, ANSWERS) == ask(reference, ANSWERS)
    assert ask(store, CHOICES) == ask(reference, CHOICES)


def test_a_failed_trial_loses_and_a_row_of_failed_trials_is_refused(tmp_path: Path) -> None:
    # A rate at which the weights overflow: the run stops with an error.
    content = TUNED_PLAN.replace("[0.0005, 0.002]", "[0.0005, 1.0e+38]").replace("[0.001, 0.004]", "[1.0e+37, 1.0e+38]")
    plan, store = write_plan(tmp_path, content), tmp_path / "store"
    done = stillroom("sweep", str(plan), store=store)
    printed = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, printed
    assert "SFT: learning_rate=0.0005" in printed
    assert printed.count("lost trial: ") == 3
    assert "OPSD: 2 of 2 tuning trials failed, so nothing can be chosen" in printed
    assert "wrong hint: OPSD: 2 of 2 tuning trials failed" in printed
    assert {row["label"] for row in ask(store, "select label from final_scores where plan = 'tuned'")} == {
        "Base",
        "SFT",
    }
    trials = ask(store, "select label, status, is_chosen from tuning_trials order by position")
    assert [(row["label"], row["status"], row["is_chosen"]) for row in trials] == [
        ("SFT", "done", True), ("SFT", "failed", False), ("OPSD", "failed", False), ("OPSD", "failed", False),
    ]  # fmt: skip


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
