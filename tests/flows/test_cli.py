"""The command line as a user meets it: refusals are one line and exit code 2, and nothing is started."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.cli import main
from tests.flows.study import PLAN, stillroom


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["swep", "demo"], 'Did you mean "sweep"'),
        (["sweep", "dmo"], "no plan named 'dmo'; did you mean 'demo'?"),
        (["sweep", "absent/plan.yaml"], "absent/plan.yaml: no such plan file"),
        (["methods", "opds"], "unknown method 'opds'; did you mean 'opsd'?"),
        (["run", "opds", "--benchmark", "addition"], "unknown method 'opds'; did you mean 'opsd'?"),
        (["run", "opsd", "--benchmark", "adition"], "unknown benchmark 'adition'; did you mean 'addition'?"),
        (["run", "opsd", "--benchmark", "addition", "--set", "views"], "write PATH=VALUE"),
        (
            ["run", "opsd", "--benchmark", "addition", "--set", "views.teacher.weight=ema"],
            "no field 'weight' in views.teacher (path 'views.teacher.weight'); did you mean 'weights'?",
        ),
        (["run", "opsd", "--benchmark", "addition", "--updates", "many"], "many"),
        (["run", "opsd", "--benchmark", "addition", "--updates", "0"], "--updates must be 1 or more"),
        (["run", "opsd", "--benchmark", "addition", "--model", "tiny-dmo"], "did you mean 'tiny-demo'?"),
        (["run", "opsd", "--benchmark", "gsm8k"], "STILLROOM_BENCHMARKS"),
        (["compare"], "run `stillroom demo`"),
        (["query", "select 1"], "run `stillroom demo`"),
        (["compare", "--format", "word"], "none of table, markdown, csv, json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    store = tmp_path / "store"
    done = stillroom(*arguments, store=store, timeout=120, STILLROOM_BENCHMARKS="")
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("stillroom: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert not any(store.glob("runs/*")), "nothing may be left of a refused command"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train: addition", "train: adition", "did you mean 'addition'?"),
        ("train: addition, limit: 400", "train: nowhere.jsonl", "nowhere.jsonl"),
        ("benchmarks: [addition]", "benchmarks: [aditon]", "did you mean 'addition'?"),
        ("max_new_tokens: 34", "max_new_tokens: 5000", "the model takes"),
        ("batch.prompts: 8", "sampling.max_new_tokens: 5000", "the model takes"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    plan = tmp_path / "plan.yaml"
    assert old in PLAN
    plan.write_text(PLAN.replace(old, new))
    store = tmp_path / "store"
    done = stillroom("sweep", str(plan), store=store, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "starting" not in done.stdout
    assert not any(store.glob("runs/*"))


def test_training_problems_that_are_also_test_problems_are_refused(tmp_path: Path) -> None:
    for name, problem in (("train", "What is 12 + 34?"), ("test", "what is  12 + 34 ?")):
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({"problem": problem, "solution": "12 + 34 = 46", "answer": "46"}) + "\n"
        )
    plan = tmp_path / "plan.yaml"
    data = f"{{train: {tmp_path}/train.jsonl, test: {tmp_path}/test.jsonl}}"
    plan.write_text(
        PLAN.replace("{train: addition, limit: 400}", data).replace("benchmarks: [addition]", "benchmarks: [data]")
    )
    done = stillroom("sweep", str(plan), store=tmp_path / "store", timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "train.jsonl" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_listing_commands_speak_json(tmp_path: Path) -> None:
    for command in ("methods", "benchmarks", "plans", "status"):
        done = stillroom(command, "--json", store=tmp_path / "store", timeout=60)
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), list)
    opsd = stillroom("methods", "opsd", "--json", store=tmp_path / "store", timeout=60)
    assert json.loads(opsd.stdout)["views"]["teacher"]["weights"] == {"kind": "frozen"}


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])

    assert capsys.readouterr().out.strip() == version("stillroom") != "0.0.0"
