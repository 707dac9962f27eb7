"""Plans with tuning: what is refused, equal trials, what runs with which values, what is recorded and listed."""

from __future__ import annotations

import copy
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from ruamel.yaml import YAML

from flows.expansion import expand, expand_trials
from flows.plan import parse_plan
from flows.plan_spec import Plan, PlanError, Tuning
from flows.prepare import PreparedPlan, PreparedRun, prepare, record_plan
from flows.report import print_dry_run
from flows.settings import Settings
from flows.status import status_rows

CLIP = "phases.student.terms.distill.entry_clip"
PLAN: dict[str, Any] = {
    "name": "tuned",
    "model": "tiny-small",
    "data": {"train": "addition", "limit": 100},
    "preset": "tiny",
    "budget": {"updates": 4},
    "evaluation": {
        "benchmarks": ["addition"],
        "problems": 20,
        "sampling": {"max_new_tokens": 34, "temperature": 0},
        "every_updates": 2,
    },
    "tuning": {"axes": {"learning_rate": [0.001, 0.0005, 0.002]}, "seeds": [100, 101], "problems": 10},
    "seeds": [0, 1],
    "cells": [
        {"method": "opsd"},
        {"method": "sft", "tuning": {"learning_rate": [0.01, 0.02, 0.03]}},
        {"method": "opsd", "label": "wrong hint", "control": True, "like": "OPSD", "set": {"batch.prompts": 4}},
        {"method": "grpo", "tune": False},
    ],
}
Change = Callable[[dict[str, Any]], object]


def parsed(change: Change = lambda _: None) -> Plan:
    data = copy.deepcopy(PLAN)
    change(data)
    return parse_plan(data, "my.yaml")


def rates(cell: Any) -> set[float]:
    return {phase.optimiser.learning_rate for phase in cell.spec.method.phases.values()}


def cell(data: dict[str, Any], index: int, **values: Any) -> None:
    data["cells"][index].update(values)


REFUSED: dict[str, tuple[Change, str]] = {
    "another number of values": (
        lambda d: cell(d, 1, tuning={"learning_rate": [0.01]}),
        "cells[1].tuning.learning_rate: 1 values, and the plan's tuning has 3: every cell gets the same number",
    ),
    "another axis": (
        lambda d: cell(d, 1, tuning={"learning_rat": [1, 2, 3]}),
        "cells[1].tuning: 'learning_rat' is no axis of the plan's tuning; did you mean 'learning_rate'?",
    ),
    "a path that matches nothing": (
        lambda d: d["tuning"].update(axes={"phases.*.optimizer.betas": [1]}) or cell(d, 1, tuning={}),
        "cells[0].tuning: path 'phases.*.optimizer.betas' matches nothing: no 'optimizer' in phases.student",
    ),
    "a field that is not there": (
        lambda d: d["tuning"].update(axes={"batch.promts": [1]}) or cell(d, 1, tuning={}),
        "cells[0].tuning: no field 'promts' in batch (path 'batch.promts'); did you mean 'prompts'?",
    ),
    "a value out of range": (
        lambda d: d["tuning"]["axes"].update(learning_rate=[0.1, 0.2, -1]),
        "cells[0].tuning: method 'opsd'",
    ),
    "no values": (lambda d: d["tuning"]["axes"].update(learning_rate=[]), "axis 'learning_rate' has no values"),
    "no axes": (lambda d: d["tuning"].update(axes={}), "tuning.axes: dict"),
    "a value twice": (
        lambda d: d["tuning"]["axes"].update(learning_rate=[1, 1, 2]),
        "axis 'learning_rate' names a value twice",
    ),
    "seeds of the table": (lambda d: d["tuning"].update(seeds=[1, 100]), "tuning.seeds shares [1] with seeds"),
    "repeated seeds": (lambda d: d["tuning"].update(seeds=[7, 7]), "tuning.seeds: seeds repeat"),
    "the table's split": (lambda d: d["tuning"].update(split="test"), "tuning.split and evaluation.split are both"),
    "given and chosen": (
        lambda d: cell(d, 0, set={"phases.student.optimiser.learning_rate": 0.1}),
        "cells[0]: phases.student.optimiser.learning_rate is in set and chosen by tuning",
    ),
    "axis and chosen": (
        lambda d: d.update(axes={"learning_rate": [0.1, 0.2]}),
        "cells[0]: phases.student.optimiser.learning_rate is in axes and chosen by tuning",
    ),
    "like nobody": (
        lambda d: cell(d, 2, like="OPDS"),
        "cells[2].like: no cell has the label 'OPDS'; did you mean 'OPSD'?",
    ),
    "like an untuned cell": (
        lambda d: cell(d, 2, like="GRPO"),
        "cells[2].like: no values are chosen for 'GRPO' itself: name a cell that is tuned",
    ),
    "like and tuned": (lambda d: cell(d, 2, tune=True), "cells[2]: like takes another cell's values over"),
    "values for an untuned cell": (
        lambda d: cell(d, 3, tuning={"learning_rate": [1, 2, 3]}),
        "cells[3]: tuning has values for a cell that is not tuned",
    ),
    "no tuned cell": (
        lambda d: d.update(cells=[{"method": "grpo", "tune": False}]),
        "tuning chooses for no cell",
    ),
    "tuned without tuning": (lambda d: d.pop("tuning"), "cells[1] speaks of tuning and the plan has none: add tuning:"),
    "the same twice": (
        lambda d: d["cells"].append({"method": "opsd", "label": "again"}),
        "cells[4] is the same run as cells[0]",
    ),
    "the same by likeness": (
        lambda d: cell(d, 2, set={}),
        "cells[2] is the same run as cells[0]",
    ),
    "no updates": (lambda d: d["tuning"].update(budget={"updates": 0}), "0 updates train nothing"),
    "unknown key": (lambda d: d["tuning"].update(seedz=[1]), "tuning.seedz: unknown key; did you mean 'seeds'?"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_with_its_place(change: Change, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        parsed(change)
    assert message in str(caught.value)
    assert str(caught.value).startswith("my.yaml: ")
    assert "\n" not in str(caught.value)


def test_every_tuned_cell_gets_the_same_number_of_trials() -> None:
    trials = expand_trials(parsed())
    assert Counter(trial.trial_of for trial in trials) == {"OPSD": 6, "SFT": 6}
    tried = {label: [rates(t) for t in trials if t.trial_of == label and t.seed == 100] for label in ("OPSD", "SFT")}
    assert tried == {"OPSD": [{0.001}, {0.0005}, {0.002}], "SFT": [{0.01}, {0.02}, {0.03}]}
    assert {trial.seed for trial in trials} == {100, 101}
    assert {(t.spec.evaluation.split, t.spec.evaluation.problems) for t in trials} == {("validation", 10)}
    assert len({trial.label for trial in trials}) == 6


def test_two_axes_are_tried_at_every_combination() -> None:
    plan = parsed(lambda d: d["tuning"]["axes"].update({"batch.prompts": [2, 4]}) or cell(d, 2, set={CLIP: 0.5}))
    trials = [trial for trial in expand_trials(plan) if trial.trial_of == "SFT" and trial.seed == 100]
    assert [(*trial.axes.values(),) for trial in trials] == [(r, n) for r in (0.01, 0.02, 0.03) for n in (2, 4)]


def test_the_trials_have_a_budget_and_an_evaluation_of_their_own() -> None:
    trials = expand_trials(parsed(lambda d: d["tuning"].update(budget={"rollout_tokens": 77}, every_updates=3)))
    assert {t.spec.budget.model_dump_json() for t in trials} == {'{"kind":"rollout_tokens","tokens":77}'}
    assert {t.spec.evaluation.every_updates for t in trials} == {3}
    plain = expand_trials(parsed(lambda d: d["tuning"].pop("problems")))
    assert {(t.spec.evaluation.every_updates, t.spec.evaluation.problems) for t in plain} == {(2, 20)}


def test_runs_take_the_chosen_values_and_those_that_are_not_tuned_their_own() -> None:
    plan = parsed()
    chosen = {"OPSD": {"learning_rate": 0.125}, "SFT": {"learning_rate": 0.25}}
    runs = expand(plan, chosen=chosen)
    assert {run.label: rates(run) for run in runs if run.method_key in ("opsd", "sft")} == {
        "OPSD": {0.125},
        "SFT": {0.25},
        "wrong hint": {0.125},
    }
    assert {run.label: run.tuned_like for run in runs if run.seed == 1} == {
        "OPSD": "OPSD",
        "SFT": "SFT",
        "wrong hint": "OPSD",
        "GRPO": None,
    }
    untouched = expand(parsed(lambda d: d.update(cells=[d["cells"][3], {"method": "sft"}])))
    grpo = [run.spec for run in runs if run.method_key == "grpo"]
    assert grpo == [run.spec for run in untouched if run.method_key == "grpo"]
    assert {run.spec.evaluation.split for run in runs} == {"test"}


def test_rows_on_the_axes_of_the_plan_are_tuned_each_for_itself() -> None:
    plan = parsed(
        lambda d: d.update(
            axes={"batch.prompts": [8, 16]}, cells=[d["cells"][0], {**d["cells"][2], "set": {CLIP: 0.5}}]
        )
    )
    assert {trial.trial_of for trial in expand_trials(plan)} == {"OPSD, prompts=8", "OPSD, prompts=16"}
    follows = {run.label: run.tuned_like for run in expand(plan) if run.is_control}
    assert follows == {
        "wrong hint, prompts=8": "OPSD, prompts=8",
        "wrong hint, prompts=16": "OPSD, prompts=16",
    }


# --- prepared ------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    import os

    return Settings(tmp_path / "store", Path(os.environ["STILLROOM_CACHE"]), None)


def finish(run: PreparedRun, right: int) -> None:
    """A run's folder as it is when the run is done, with ``right`` of 10 answers right."""
    counts = {"addition": {"problems": 10, "answers": 10, "passed": right, "not_scored": 0}}
    (run.folder.path / "evaluations").mkdir(exist_ok=True)
    (run.folder.path / "evaluations" / "4.json").write_text(json.dumps({"benchmarks": counts}))
    run.folder.finish({"updates": 4})


def of(prepared: PreparedPlan, row: str) -> list[PreparedRun]:
    return [trial for trial in prepared.trials if trial.cell.trial_of == row]


def printed(prepared: PreparedPlan) -> str:
    console = Console(width=150, file=io.StringIO(), record=True)
    print_dry_run(prepared, console)
    return console.export_text()


def test_from_waiting_to_chosen(settings: Settings) -> None:
    plan = parsed()
    first = prepare(plan, settings)
    record_plan(first, settings, 1.0)
    assert [run.cell.label for run in first.runs] == ["Base", "GRPO", "GRPO"]
    assert [run.label for run in first.waiting] == [label for label in ("OPSD", "SFT", "wrong hint") for _ in (0, 1)]
    assert len(first.missing()) == 12 + 3
    text = printed(first)
    assert text.count("chosen by tuning") == 6
    assert "12 of 12 tuning trials and 9 of 9 runs to do; nothing was started" in text
    rows = status_rows(settings.store, "tuned")
    assert Counter(row["state"] for row in rows) == {"queued": 15, "waits for tuning": 6}

    for trial, right in zip(of(first, "OPSD"), (3, 2, 5, 5, 4, 6), strict=True):  # means: 2.5, 5, 5 of 10
        finish(trial, right)
    for trial in of(first, "SFT")[:-1]:
        finish(trial, 9)
    half = prepare(plan, settings)
    assert {label: choice.values for label, choice in half.choices.items()} == {"OPSD": {"learning_rate": 0.0005}}
    assert {run.label for run in half.waiting} == {"SFT"}
    assert {run.cell.label: rates(run.cell) for run in half.runs if run.cell.tuned_like} == {
        "OPSD": {0.0005},
        "wrong hint": {0.0005},
    }
    assert "OPSD, chosen: learning_rate=0.0005" in printed(half)

    lost = of(first, "SFT")[-1]
    again = prepare(plan, settings, gave_up=lambda path: path == lost.folder.path)
    assert again.choices["SFT"].values == {"learning_rate": 0.01}, "0.02 is as good and 0.03 has failed"
    assert not again.waiting and not again.refused
    record_plan(again, settings, 2.0)
    edition = json.loads((settings.store / "plans" / "tuned.json").read_text())["edition"]
    assert edition["choices"]["SFT"]["values"] == {"learning_rate": 0.01}
    assert [trial["state"] for trial in edition["choices"]["SFT"]["trials"]] == ["done", "done", "failed"]
    assert len(edition["runs"]) == 9 and len(edition["trials"]) == 12 and edition["waiting"] == []
    assert len({run.run_id for run in again.runs}) == 9
    assert prepare(plan, settings, gave_up=lambda path: path == lost.folder.path) == again


def test_the_store_tells_what_was_chosen_from_what(settings: Settings) -> None:
    plan = parsed(lambda d: d.update(cells=d["cells"][:3]))
    for trial in (waiting := prepare(plan, settings)).trials:
        trial.folder.path.mkdir(parents=True)
        finish(trial, 5)
    record_plan(prepare(plan, settings), settings, 1.0)
    facts = [
        json.loads(line)
        for file in settings.store.glob("runs/*/spool/*.jsonl")
        for line in file.read_text().splitlines()
    ]
    cells = [fact for fact in facts if fact["kind"] == "plan_cell"]
    trials = [fact for fact in cells if fact["data"]["plan"] == "tuned:tuning"]
    assert len(trials) == 12 and {fact["data"]["tuning"]["of"] for fact in trials} == {"OPSD", "SFT"}
    table = {fact["data"]["label"]: fact["data"] for fact in cells if fact["data"]["plan"] == "tuned"}
    assert table["Base"]["tuning"] == {}
    for label, like, rate in (("OPSD", None, 0.0005), ("SFT", None, 0.01), ("wrong hint", "OPSD", 0.0005)):
        record = table[label]["tuning"]
        assert (record["like"], record["values"], record["score"]) == (like, {"learning_rate": rate}, 0.5)
        assert len(record["trials"]) == 3
        chosen = {t.run_id for t in waiting.trials if t.cell.trial_of == (like or label) and rates(t.cell) == {rate}}
        assert {*record["chosen"]} == chosen
        assert table[label]["axes"] == {}
        assert table[label]["overrides"]["learning_rate"] == rate


def test_a_row_without_any_finished_trial_is_refused_and_the_others_go_on(settings: Settings) -> None:
    plan = parsed()
    first = prepare(plan, settings)
    record_plan(first, settings, 1.0)
    for trial in of(first, "SFT"):
        finish(trial, 1)
    second = prepare(plan, settings, gave_up=lambda _: True)
    assert {*second.refused} == {"OPSD", "wrong hint"}
    assert second.refused["OPSD"].startswith("OPSD: 3 of 3 tuning trials failed, so nothing can be chosen")
    assert second.refused["wrong hint"].startswith("wrong hint: OPSD: 3 of 3")
    assert {run.cell.label for run in second.runs} == {"Base", "SFT", "GRPO"}
    assert not second.waiting
    record_plan(second, settings, 2.0)
    assert second.refused["OPSD"] in printed(second).replace("\n", " ")


def test_the_two_phases_share_no_problem(settings: Settings, tmp_path: Path) -> None:
    def write(name: str, *sums: tuple[int, int]) -> str:
        lines = [{"problem": f"{a}+{b}", "solution": f"{a}+{b}={a + b}", "answer": str(a + b)} for a, b in sums]
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return str(tmp_path / name)

    data = {
        "train": write("train.jsonl", *[(a, 2 * a) for a in range(100, 180)]),
        "validation": write("validation.jsonl", (200, 311), (201, 313)),
        "test": write("test.jsonl", (201, 313), (202, 315)),
        "grader": "text",
    }
    plan = parsed(lambda d: d.update(data=data, evaluation={**d["evaluation"], "benchmarks": ["data"]}))
    with pytest.raises(PlanError, match="validation and test share 1 problems"):
        prepare(plan, settings)
    data["test"] = write("test.jsonl", (202, 315))
    assert prepare(plan, settings).trials


def test_the_example_of_the_docs_is_a_plan(repository_root: Path) -> None:
    page = (repository_root / "docs" / "studies.md").read_text()
    example = page.partition("## Fair tuning")[2].partition("```yaml")[2].partition("```")[0]
    plan = parsed(lambda d: d.update(YAML(typ="safe").load(example)))
    assert Counter(trial.trial_of for trial in expand_trials(plan)) == {"OPSD": 3, "GRPO": 3}
    assert plan.tuning is not None and plan.tuning.budget is not None
    shown = {line.split(":")[0].strip() for line in example.partition("cells:")[0].splitlines()[1:] if ":" in line}
    assert shown == {"tuning", *Tuning.model_fields}, "every key of tuning is in the example"
