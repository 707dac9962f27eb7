"""Plans: what ships parses, what is wrong is refused with its place and the nearest valid name."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.plan import PLANS, PlanError, expand, load_plan, parse_plan
from flows.prepare import prepare
from flows.settings import Settings
from training.method import FrozenWeights, View

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def demo() -> dict[str, Any]:
    return YAML(typ="safe").load((PLANS / "demo.yaml").read_text())


@pytest.mark.parametrize("file", sorted(PLANS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_plan_parses_and_is_named_after_its_file(file: Path) -> None:
    plan = load_plan(file)
    assert plan.name == file.stem
    assert expand(plan)


REFUSED: dict[str, tuple[Change, str]] = {
    "unknown key": (lambda d: d.update(seedz=[1]), "seedz: unknown key; did you mean 'seeds'?"),
    "unknown nested key": (
        lambda d: d["evaluation"]["sampling"].update(temprature=1),
        "evaluation.sampling.temprature: unknown key; did you mean 'temperature'?",
    ),
    "unknown key in a list": (
        lambda d: d["cells"][1].update(metod="opsd"),
        "cells[1].metod: unknown key; did you mean 'method'?",
    ),
    "unknown method": (
        lambda d: d["cells"][0].update(method="opds"),
        "cells[0].method: unknown method 'opds'; did you mean 'opsd'?",
    ),
    "unknown preset": (lambda d: d["cells"][0].update(preset="tny"), "no preset 'tny'; did you mean 'tiny'?"),
    "unknown path": (
        lambda d: d["cells"][0]["set"].update({"views.teecher.weights": "ema"}),
        "no field 'teecher' in views (path 'views.teecher.weights'); did you mean 'teacher'?",
    ),
    "unknown value": (
        lambda d: d["cells"][0]["set"].update({"views.teacher.weights": "emma"}),
        "views.teacher.weights: 'emma' is not valid here; did you mean 'ema'?",
    ),
    "wrong type": (
        lambda d: d["evaluation"].update(every_updates="ten"),
        "evaluation.every_updates: input should be a valid integer",
    ),
    "wrong type in a method": (
        lambda d: d["cells"][0]["set"].update({"phases.student.optimiser.learning_rate": "fast"}),
        "phases.student.optimiser.learning_rate: Input should be a valid number",
    ),
    "out of range": (
        lambda d: d["evaluation"]["sampling"].update(temperature=-1),
        "evaluation.sampling.temperature: input should be greater than or equal to 0, not -1",
    ),
    "unknown budget": (
        lambda d: d.update(budget={"rollout_token": 3}),
        "budget: unknown budget 'rollout_token'; did you mean 'rollout_tokens'?",
    ),
    "two budgets": (
        lambda d: d.update(budget={"updates": 3, "rollout_tokens": 5}),
        "budget: give exactly one of updates, rollout_tokens",
    ),
    "missing key": (lambda d: d.pop("model"), "model: missing"),
    "no seeds": (lambda d: d.update(seeds=[]), "seeds: list should have at least 1 item"),
    "repeated seed": (lambda d: d.update(seeds=[1, 1]), "seeds: seeds repeat"),
    "equal cells": (
        lambda d: d["cells"].append({"method": "grpo", "label": "GRPO again"}),
        "cells[5] is the same run as cells[2]: remove one of them",
    ),
    "equal labels": (
        lambda d: d["cells"].append({"method": "grpo", "set": {"batch.prompts": 4}}),
        "cells[5]: label 'GRPO' is taken",
    ),
    "not a list": (lambda d: d.update(cells="opsd"), "cells: input should be a list"),
    "bad name": (lambda d: d.update(name="My Plan"), "name: string should match pattern"),
    "boolean seed": (lambda d: d.update(seeds=[True, 2]), "true and false are not numbers"),
    "boolean in a method": (
        lambda d: d["cells"][0]["set"].update({"batch.prompts": True}),
        "prompts: true and false are not numbers",
    ),
    "seed too large": (lambda d: d.update(seeds=[10**26]), "seed"),
    "axis without values": (lambda d: d.update(axes={"batch.prompts": []}), "axis 'batch.prompts' has no values"),
    "axis value twice": (
        lambda d: d.update(axes={"batch.prompts": [8, 8]}),
        "axis 'batch.prompts' names a value twice",
    ),
    "no updates": (lambda d: d.update(budget={"updates": 0}), "0 updates train nothing"),
    "benchmark twice": (
        lambda d: d["evaluation"].update(benchmarks=["addition", "addition"]),
        "benchmarks must name at least one, each once",
    ),
    "label over two lines": (lambda d: d["cells"][0].update(label="a\nb"), "label: string should match pattern"),
    "name too long": (lambda d: d.update(name="a" * 300), "name: string should have at most 80 characters"),
    "clip without summands": (
        lambda d: d["cells"][0]["set"].update(
            {
                "phases.student.terms.distill.divergence": {"kind": "renyi", "order": 0.5},
                "phases.student.terms.distill.entry_clip": 0.05,
            }
        ),
        "entry_clip acts on summands and Rényi has none",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_with_its_place(demo: dict[str, Any], change: Change, message: str) -> None:
    broken = copy.deepcopy(demo)
    change(broken)
    with pytest.raises(PlanError) as caught:
        parse_plan(broken, "my.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("my.yaml: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: x\n  bad: [")
    with pytest.raises(PlanError, match=r"broken\.yaml:2: not valid YAML"):
        load_plan(broken)
    twice = tmp_path / "twice.yaml"
    twice.write_text("name: a\nname: b\n")
    with pytest.raises(PlanError, match=r"twice\.yaml:2: not valid YAML"):
        load_plan(twice)
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(PlanError, match="a plan is a mapping"):
        load_plan(empty)
    with pytest.raises(PlanError, match="did you mean 'demo'"):
        load_plan("dmo")


def test_expansion_is_cells_times_axes_times_seeds(demo: dict[str, Any]) -> None:
    demo["cells"] = [{"method": "opsd"}]
    demo["axes"] = {
        "phases.student.terms.distill.divergence": ["forward_kl", "jsd"],
        "views.teacher.weights": ["frozen", "ema"],
    }
    cells = expand(parse_plan(demo, "my.yaml"))
    assert len(cells) == 1 + 2 * 2 * 3
    assert cells[0].method_key == "base"
    assert {cell.label for cell in cells[1:]} == {
        f"OPSD, divergence={divergence}, weights={weights}"
        for divergence in ("forward_kl", "jsd")
        for weights in ("frozen", "ema")
    }
    frozen = next(cell for cell in cells if cell.label.endswith("jsd, weights=frozen"))
    assert frozen.spec.method is not None
    assert isinstance(frozen.spec.method.views["teacher"], View)
    assert isinstance(frozen.spec.method.views["teacher"].weights, FrozenWeights)


def test_resources_and_texts_are_not_part_of_a_run(demo: dict[str, Any]) -> None:
    other = {**copy.deepcopy(demo), "resources": {"trainers": 1}, "notes": "", "title": "", "tags": ["x"]}
    specs = [[cell.spec for cell in expand(parse_plan(plan, "my.yaml"))] for plan in (demo, other)]
    assert specs[0] == specs[1]


def test_relative_paths_start_at_the_plan_and_do_not_make_another_run(tmp_path: Path) -> None:
    from flows.prepare import prepare
    from flows.settings import Settings

    ids = []
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "my.jsonl").write_text(
            "".join(
                f'{{"problem": "{a}+{b}", "solution": "{a}+{b}={a + b}#{a + b}", "answer": "{a + b}"}}\n'
                for a, b in zip(range(100, 160), range(300, 900, 10), strict=True)
            )
        )
        (folder / "own.yaml").write_text(
            "name: own\nmodel: tiny-small\ndata: {train: my.jsonl, grader: text}\npreset: tiny\nbudget: {updates: 1}\n"
            "evaluation: {benchmarks: [data], sampling: {max_new_tokens: 8}, every_updates: 1}\n"
            "cells: [{method: sft}]\n"
        )
        plan = load_plan(folder / "own.yaml")
        assert plan.data.train == str(folder / "my.jsonl")
        prepared = prepare(plan, Settings(tmp_path / "store", tmp_path / "cache", None))
        ids.append([run.run_id for run in prepared.runs])
    assert ids[0] == ids[1]


@pytest.mark.parametrize("name", [path.stem for path in sorted(PLANS.glob("*.yaml")) if "smollm2" not in path.stem])
def test_every_shipped_plan_of_the_tiny_bases_could_start(name: str, tmp_path: Path) -> None:
    """Contexts, lengths, settings and tuning are checked as a sweep checks them, short of starting anything."""
    plan = load_plan(name)
    few = plan.model_copy(update={"data": plan.data.model_copy(update={"limit": 100})})
    prepared = prepare(few, Settings(tmp_path / "store", Path(os.environ["STILLROOM_CACHE"]), None))
    assert prepared.missing()
