"""The methods table, pages and document say what the specs hold, all of it, and in a form that plans take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.cli import methods
from flows.method_docs import method_section, methods_document
from flows.method_fields import SHOWN, field_rows, short
from flows.method_pages import describe_method
from flows.method_table import COLUMNS, method_row, methods_markdown
from tests.flows.test_catalogue import printed
from training.method import Adapter, Method, override
from training.methods import METHODS, PRESETS


def test_the_document_is_the_generated_one(repository_root: Path) -> None:
    shipped = (repository_root / "docs" / "methods.md").read_text()
    assert shipped == methods_document(), "run `stillroom methods --docs > docs/methods.md`"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_settings_of_a_section_are_the_method(method: Method) -> None:
    (settings,) = re.findall(r"```yaml\n(.*?)```", method_section(method), flags=re.DOTALL)
    described = method.model_dump(exclude=set(SHOWN))

    assert Method.model_validate({**described, **YAML(typ="safe", pure=True).load(settings)}) == method


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_ablations_of_a_section_lead_where_the_listed_values_lead(method: Method) -> None:
    block = method_section(method).split("Ablations:\n\n")[1].split("\n\n")[0]
    for line, (path, values) in zip(block.splitlines(), method.ablations.items(), strict=True):
        named, *told = re.findall(r"`([^`]*)`", line)
        assert named == path
        for text, value in zip(told, values, strict=True):
            assert override(method, path, YAML(typ="safe", pure=True).load(text)) == override(method, path, value)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_field_has_a_meaning(method: Method) -> None:
    rows = list(field_rows(method))
    assert len({row.path for row in rows}) == len(rows)
    for row in rows:
        assert row.meaning.endswith((".", "]")), row.path
        assert "`" not in row.meaning


def test_a_field_lists_what_it_chooses_from() -> None:
    rows = {row.path: row for row in field_rows(METHODS["opsd"])}
    divergence = rows["phases.student.terms.distill.divergence"]

    assert (divergence.value, divergence.choices) == ("forward_kl", ("forward_kl", "reverse_kl", "jsd", "renyi"))
    assert rows["phases.student.terms.distill.reduction"].choices == ("token_mean", "sequence_mean", "constant")
    assert rows["batch.groups"].choices == ("all", "mixed_rewards")
    assert rows["sampling.top_k"].choices == ()


@pytest.mark.parametrize("key", METHODS)
def test_a_page_shows_everything(key: str) -> None:
    method = METHODS[key]
    text = printed(*describe_method(method))
    flat = re.sub(r"[\s│]+", " ", text)

    assert method.summary in flat and method.title in flat
    for path in (*(row.path for row in field_rows(method)), *method.ablations):
        assert path in text
    for preset, changes in PRESETS[key].items():
        assert f"Preset {preset}" in text
        assert all(path in text for path in changes)
    for name in (*method.open_choices, *method.code_differences):
        assert name in flat


def test_numbers_are_shown_as_plans_write_them() -> None:
    assert short(5e-6) == "5e-06" and short(None) == "null" and short(True) == "true"
    assert short(("a", 1)) == "[a, 1]"
    assert short(Adapter(rank=8)) == "{rank: 8}"


def test_the_table_has_a_row_for_every_method_and_short_cells() -> None:
    lines = methods_markdown().splitlines()
    assert [re.findall(r"`(\w+)`", line)[0] for line in lines[2:]] == [*METHODS]
    for line in lines:
        assert len(line.strip("|").split(" | ")) == len(COLUMNS)
        assert max(len(cell) for cell in line.split(" | ")) <= 64


@pytest.mark.parametrize(
    ("key", "column", "said"),
    [
        ("sft", "loss", "cross entropy"),
        ("seq_kd", "teacher", "frozen"),
        ("opsd", "weighting", "entry clip 0.05"),
        ("opsd_v1", "loss", "JSD 0.5"),
        ("sdft", "teacher", "average 0.01"),
        ("sds", "loss", "JSD 0.5 + 0.2 · cross entropy"),
        ("usd", "context", "β of the solution"),
        ("tip", "weighting", "top 20 % by soft-or, entry clip 0.05"),
        ("sdpo_code", "loss", "reverse KL (top 20 + tail)"),
        ("sr_opsd_science", "teacher", "average^0.9 · frozen^0.1"),
        ("dapo", "weighting", "clip 0.2/0.28, mixed groups only"),
        ("rlsd", "teacher", "before the update"),
        ("sdpg_ufkl", "loss", "policy gradient + β(k) · reverse KL + 0.001 · UFKL to the start"),
        ("vpd", "loss", "reverse KL (top 100 + tail) + unpaired preference"),
    ],
)
def test_cells_say_what_the_spec_holds(key: str, column: str, said: str) -> None:
    assert method_row(METHODS[key])[column] == said


@pytest.mark.parametrize(
    ("path", "value", "column", "said"),
    [
        ("views.teacher.weights", "ema", "teacher", "average 0.05"),
        ("views.teacher.weights", {"kind": "synced", "every": 5}, "teacher", "copy every 5"),
        ("views.teacher.context", {"kind": "partial_solution", "share": 0.5}, "context", "0.5 of the solution"),
        ("phases.student.terms.distill.divergence", {"kind": "renyi", "order": 0.5}, "loss", "Rényi 0.5"),
        ("phases.student.terms.distill.gate", "passed", "weighting", "passed"),
    ],
)
def test_cells_follow_a_changed_value(path: str, value: object, column: str, said: str) -> None:
    assert method_row(override(METHODS["opsd_v1"], path, value))[column] == said


def test_the_command_prints_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods(docs=True) == 0
    assert capsys.readouterr().out == methods_document()
    assert methods(markdown=True) == 0
    assert capsys.readouterr().out == methods_markdown() + "\n"
    assert methods("usd", markdown=True) == 0
    assert capsys.readouterr().out == method_section(METHODS["usd"]) + "\n"
    assert methods("vpd", json=True) == 0
    assert Method.model_validate(json.loads(capsys.readouterr().out)) == METHODS["vpd"]
