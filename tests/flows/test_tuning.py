"""The choice of settings as a function of trials, and what folders say of them."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from evaluation.results.records import RunEvent
from evaluation.results.spool import Spool
from flows.tuning import NothingToChooseError, State, Trial, TrialRun, choose, failed_before, read_trial_run


def trial(value: Any, *right: int, of: int = 10, state: State = "done", path: str = "rate") -> Trial:
    """One trial, a seed for each number of right answers."""
    runs = tuple(TrialRun(f"{value}-{seed}", seed, state, ((n, of),)) for seed, n in enumerate(right))
    return Trial({path: value}, runs)


def failed(value: Any, *right: int) -> Trial:
    """A trial whose last seed failed."""
    return Trial({"rate": value}, (*trial(value, *right).runs, TrialRun(f"{value}-x", 99, "failed")))


def chosen(*trials: Trial) -> Any:
    choice = choose("OPSD", trials)
    assert choice is not None
    return choice.values["rate"]


def test_the_highest_mean_over_seeds_wins() -> None:
    assert chosen(trial(1, 9, 1), trial(2, 6, 6), trial(3, 5, 5)) == 2


def test_the_mean_is_over_seeds_and_benchmarks_and_each_weighs_the_same() -> None:
    # 1: (1/2 + 1/100) / 2 = .255; 2: (2/10 + 40/100) / 2 = .3, though 1 has the larger share of all answers.
    one = Trial({"rate": 1}, (TrialRun("a", 0, "done", ((500, 1000), (1, 100))),))
    two = Trial({"rate": 2}, (TrialRun("b", 0, "done", ((200, 1000), (40, 100))),))
    assert (one.score(), two.score()) == (Fraction(51, 200), Fraction(3, 10))
    assert chosen(one, two) == 2


def test_of_equal_scores_the_smaller_value_wins_in_any_order() -> None:
    # 1/10 + 2/10 and 3/10 + 0/10 are equal as fractions and not as floats.
    trials = [trial(0.003, 3, 0), trial(0.0001, 1, 2), trial(0.001, 2, 1), trial(0.01, 1, 1)]
    assert 0.1 + 0.2 != 0.3
    for seed in range(10):
        random.Random(seed).shuffle(trials)
        assert chosen(*trials) == 0.0001


def test_values_that_are_no_numbers_are_ordered_as_listed() -> None:
    assert chosen(trial("ema", 5), trial("frozen", 5)) == "ema"
    assert chosen(trial("frozen", 5), trial("ema", 5)) == "frozen"
    assert chosen(trial(None, 5), trial(0.5, 5)) is None


def test_ties_on_two_axes_go_axis_by_axis() -> None:
    def at(a: int, b: int, right: int) -> Trial:
        return Trial({"a": a, "b": b}, (TrialRun(f"{a}{b}", 0, "done", ((right, 10),)),))

    choice = choose("OPSD", [at(2, 1, 5), at(1, 3, 5), at(1, 2, 5), at(1, 1, 4)])
    assert choice is not None and choice.values == {"a": 1, "b": 2}


def test_a_failed_trial_loses_against_any_other() -> None:
    assert chosen(failed(1, 10), trial(2, 0)) == 2
    assert chosen(trial(3, 0), failed(1, 10)) == 3


def test_a_trial_without_a_scored_answer_loses() -> None:
    assert chosen(trial(1, 0, of=0), trial(2, 0)) == 2


def test_nothing_is_chosen_while_a_trial_is_missing() -> None:
    assert choose("OPSD", [trial(1, 5), trial(2, 5, state="missing")]) is None
    assert choose("OPSD", [trial(1, 5), failed(2), trial(3, 1, state="missing")]) is None


def test_a_row_whose_trials_all_failed_is_refused_with_its_name() -> None:
    with pytest.raises(NothingToChooseError, match=r"^OPSD: 2 of 2 tuning trials failed, so nothing can be chosen"):
        choose("OPSD", [failed(1), failed(2)])
    with pytest.raises(NothingToChooseError, match="1 of 2 tuning trials failed, and of 1 no answer could be scored"):
        choose("OPSD", [failed(1), trial(2, 0, of=0)])


def test_the_record_holds_every_trial_and_the_choice() -> None:
    choice = choose("OPSD", [trial(1, 4, 5), trial(2, 7, 8), failed(3)])
    assert choice is not None
    record = json.loads(json.dumps(choice.to_record()))
    assert record["values"] == {"rate": 2}
    assert record["score"] == 0.75
    assert record["chosen"] == ["2-0", "2-1"]
    assert [(entry["values"], entry["state"], entry["score"]) for entry in record["trials"]] == [
        ({"rate": 1}, "done", 0.45),
        ({"rate": 2}, "done", 0.75),
        ({"rate": 3}, "failed", None),
    ]


# --- folders -------------------------------------------------------------------------------------------------------


def finish(folder: Path, **evaluations: dict[str, int]) -> None:
    (folder / "evaluations").mkdir(parents=True)
    for update, right in evaluations.items():
        counts = {
            name: {"problems": 10, "answers": 10, "passed": n, "not_scored": 2 if name == "b" else 0}
            for name, n in right.items()
        }
        (folder / "evaluations" / f"{update.removeprefix('u')}.json").write_text(json.dumps({"benchmarks": counts}))
    (folder / "finished.json").write_text("{}")


def test_the_last_evaluation_counts_and_unscored_answers_do_not(tmp_path: Path) -> None:
    finish(tmp_path / "run", u9={"a": 9, "b": 8}, u10={"a": 1, "b": 2})
    run = read_trial_run(tmp_path / "run", 100, lambda _: False)
    assert run == TrialRun("run", 100, "done", ((1, 10), (2, 8)))
    assert run.accuracy() == (Fraction(1, 10) + Fraction(2, 8)) / 2


def test_an_unfinished_run_is_missing_unless_it_was_given_up(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert read_trial_run(tmp_path / "run", 1, lambda _: False).state == "missing"
    assert read_trial_run(tmp_path / "run", 1, lambda path: path.name == "run").state == "failed"
    finish(tmp_path / "run", u2={"a": 5})
    assert read_trial_run(tmp_path / "run", 1, lambda _: True).state == "done"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], False),
        ([(0, "queued"), (1, "running"), (2, "failed")], True),
        ([(0, "queued"), (1, "running"), (2, "failed"), (3, "running")], False),
        ([(3, "running"), (4, "failed"), (2, "failed"), (1, "running")], True),
        ([(1, "running"), (2, "stopped")], False),
    ],
)
def test_whether_a_run_failed_is_the_last_event_that_the_driver_wrote(
    tmp_path: Path, events: list[tuple[int, str]], expected: bool
) -> None:
    for sequence, status in events:
        with Spool(tmp_path, role="driver", attempt=1) as spool:
            spool.append(RunEvent("run", sequence, status, 1.0))
    with Spool(tmp_path, role="trainer", attempt=1) as spool:
        spool.append(RunEvent("run", 99, "failed", 1.0))
    torn = tmp_path / "spool" / "torn.jsonl"
    torn.write_text('{"role":"driver","kind":"run_ev')
    assert failed_before(tmp_path) is expected
