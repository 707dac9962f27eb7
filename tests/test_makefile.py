"""The make targets, the CI script, and the set-up that all of them share."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
RULES = {
    match["target"]: match["needs"].split()
    for match in re.finditer(r"^(?P<target>[a-z-]+):(?P<needs>[^#\n=]*)##", MAKEFILE, re.MULTILINE)
}


def make(*arguments: str) -> str:
    """What make prints, as if typed in a shell: a make that runs the tests must not lend its options."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed: apt-get install make")


# --- targets ----------------------------------------------------------------------------------------------------


def test_the_promised_targets_are_there() -> None:
    assert {"demo", "test", "test-slow", "lint", "format", "bench", "dashboard", "smollm", "doctor", "help"} <= set(
        RULES
    )


@pytest.mark.parametrize("target", sorted(set(RULES) - {"help", "setup"}))
def test_each_target_sets_up_first(target: str) -> None:
    assert RULES[target] == ["setup"]


@needs_make
def test_help_is_the_default_and_lists_every_target() -> None:
    shown = make()
    assert [line.split()[:2] for line in shown.splitlines()] == [["make", target] for target in RULES]


@needs_make
@pytest.mark.parametrize("target", sorted(RULES))
def test_targets_run_what_is_there(target: str) -> None:
    """``make -n`` prints the commands; each program of .venv and each module named in them must exist."""
    commands = make("-n", target)
    for program in re.findall(r"^\.venv/bin/([a-z]+)", commands, re.MULTILINE):
        assert (Path(sys.prefix) / "bin" / program).exists(), program
    for module in re.findall(r"python -m ([a-z.]+)", commands):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


@needs_make
def test_fast_and_slow_tests_share_nothing_and_leave_nothing_out() -> None:
    def marks(target: str) -> list[str]:
        commands = make("-n", target)
        return re.findall(r' -m (?:"([^"]+)"|(\S+))', commands)[-1]

    assert marks("test") == ("not slow and not drill", "")
    assert marks("test-slow") == ("slow and not drill", "")
    assert marks("drill") == ("", "drill")


# --- scripts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["infra/setup.sh", ".ci/run"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_ci_runs_lint_and_both_suites_in_an_environment_it_builds() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.index("make setup") < script.index("for target in lint test test-slow")


# --- set-up -----------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project without .venv, in a folder whose name has a space."""
    target = tmp_path / "a fresh clone"
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "Makefile"):
        shutil.copy2(ROOT / name, target / name)
    for name in ("infra", "flows", "training", "evaluation", "dashboard"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def set_up(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "infra/setup.sh"],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_setup_names_a_wrong_choice_of_torch(checkout: Path) -> None:
    done = set_up(checkout, STILLROOM_TORCH="rocm")
    assert done.returncode == 1
    assert done.stderr == "set-up: STILLROOM_TORCH is 'rocm'; it takes cpu or cuda\n"
    assert not (checkout / ".venv").exists()


def test_setup_refuses_a_python_that_does_not_serve(checkout: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho ''\n")  # what the version question prints for a Python that is too old
    old.chmod(0o755)
    venv = checkout / ".venv"
    venv.mkdir()
    (venv / "kept").touch()
    done = set_up(checkout, STILLROOM_PYTHON=str(old))
    assert done.returncode == 1
    assert f"STILLROOM_PYTHON={old} is not a CPython >=3.11,<3.14" in done.stderr
    assert (venv / "kept").exists(), "the environment that was there must survive a set-up that cannot start"


def test_setup_says_how_to_get_a_python_that_makes_environments(checkout: Path, tmp_path: Path) -> None:
    """Debian's python3 without python3-venv runs, but has no ensurepip."""
    bare = tmp_path / "python3.11"
    bare.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sed", "cat", "cksum", "tr", "uname", "dirname", "grep"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = set_up(checkout, PATH=str(tools), STILLROOM_PYTHON=str(bare), STILLROOM_TORCH="cpu")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert done.returncode == 1
    assert (
        f"{bare} cannot create environments; on Debian or Ubuntu: apt-get install python{version}-venv" in done.stderr
    )


@pytest.mark.slow
def test_setup_from_nothing_again_and_after_an_interruption(checkout: Path) -> None:
    first = set_up(checkout)
    if "dns error" in first.stderr or "client error (Connect)" in first.stderr:
        pytest.skip("the package index cannot be reached")
    assert first.returncode == 0, first.stderr
    python = checkout / ".venv" / "bin" / "python"
    loads = [str(python), "-c", "import torch, ray, prefect, duckdb, flows; print(torch.__version__, flows.__file__)"]
    version, file = subprocess.run(loads, cwd="/", check=True, capture_output=True, text=True).stdout.split(" ", 1)
    assert file.strip() == str(checkout / "flows" / "__init__.py")
    if not Path("/dev/nvidia0").exists() and "cannot be reached" not in first.stderr and sys.platform == "linux":
        assert version.endswith("+cpu")
    # The console script works in a folder with a space in its name.
    subprocess.run([checkout / ".venv" / "bin" / "ray", "--version"], check=True, capture_output=True)

    stamp = checkout / ".venv" / ".setup-done"
    before = stamp.stat().st_mtime_ns
    second = set_up(checkout)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert stamp.stat().st_mtime_ns == before

    # A refresh (here: pyproject.toml changed) is killed; the next set-up must notice and repair.
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    killed = subprocess.Popen(
        ["bash", "infra/setup.sh"],
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    unfinished = checkout / ".venv" / ".setup-unfinished"
    while not unfinished.exists():
        assert killed.poll() is None, "the set-up ended before it could be killed"
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert unfinished.exists()
    shutil.rmtree(next((checkout / ".venv" / "lib").glob("python*/site-packages/duckdb")))  # half-installed
    third = set_up(checkout)
    assert third.returncode == 0, third.stderr
    assert "an earlier set-up was interrupted; starting afresh" in third.stderr
    subprocess.run(loads, cwd="/", check=True, capture_output=True)
