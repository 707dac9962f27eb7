"""Who may import whom, read from the sources, and what a process has loaded after an import or a command."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.results.ingest import ingest

ROOT = Path(__file__).resolve().parents[1]

ALLOWED = {
    "evaluation": ("evaluation",),
    "training": ("evaluation", "training"),
    "flows": ("evaluation", "training", "flows"),
    "dashboard": ("evaluation.results", "evaluation.statistics", "dashboard"),
}
"""What each package may name in an import, also inside functions and for types only."""

EXCEPTIONS = {("flows.cli.upkeep", "dashboard")}
"""The command line starts the dashboard."""

HEAVY = ("torch", "transformers", "ray", "prefect", "deepspeed", "vllm")

LIGHT = (
    "evaluation.results",
    "evaluation.statistics",
    "evaluation.benchmarks",
    "evaluation.problems",
    "training.method",
    "training.spec",
    "training.contexts.specs",
    "training.methods",
    "training.base_models",
    "flows.cli",
    "flows.plan",
    "dashboard",
)
"""Modules, and packages with all that is below them, that load no library of HEAVY."""


# --- the sources ------------------------------------------------------------------------------------------------


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, with relative ones resolved and names of modules given as text."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = module.split(".")[: len(module.split(".")) - level + is_package] if level else []
                base = ".".join([*above, *([source] if source else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                if node.args and isinstance(node.args[0], ast.Constant):
                    yield node.lineno, str(node.args[0].value)


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of ``source`` that break the law, as "line: name"."""
    package = module.split(".")[0]
    found = []
    for line, name in imported(ast.parse(source), module, is_package):
        top = name.split(".")[0]
        if top not in (*ALLOWED, "tests", "infra") or (module, top) in EXCEPTIONS:
            continue
        if not any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[package]):
            found.append(f"{line}: {name}")
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    found = {
        str(file.relative_to(ROOT)): wrong
        for file in sorted((ROOT / package).rglob("*.py"))
        if (wrong := violations(file.read_text(), module_of(file), file.name == "__init__.py"))
    }
    assert not found


@pytest.mark.parametrize(
    ("source", "module", "is_package", "wrong"),
    [
        ("import training.method", "evaluation.evaluate", False, ["1: training.method"]),
        ("def f():\n    from flows import plan", "training.update", False, ["2: flows.plan"]),
        ("from evaluation import grading", "dashboard.app", False, ["1: evaluation.grading"]),
        ("from evaluation.results.query import run_query", "dashboard.app", False, []),
        ("from evaluation import statistics", "dashboard.app", False, []),
        ("from . import spool", "evaluation.results.ingest", False, []),
        ("from ..training import x", "evaluation.results", True, []),  # evaluation.training, not ours to judge
        ("from .. import method", "training.losses", True, []),
        ("from importlib import import_module\nimport_module('training')", "evaluation.data", False, ["2: training"]),
        ("import tests.conftest", "flows.sweep", False, ["1: tests.conftest"]),
        ("from dashboard.serve import serve", "flows.cli.upkeep", False, []),
        ("from dashboard.serve import serve", "flows.sweep", False, ["1: dashboard.serve.serve"]),
        ("import torch, evaluation.problems", "training.update", False, []),
    ],
)
def test_the_law_is_read_rightly(source: str, module: str, is_package: bool, wrong: list[str]) -> None:
    assert violations(source, module, is_package) == wrong


# --- running processes ------------------------------------------------------------------------------------------


def heavy_after(code: str, folder: Path) -> list[str]:
    """Run ``code`` in a new process started in ``folder``; the libraries of HEAVY that it has loaded at its end."""
    report = f"import sys, json; print('LOADED', json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("LOADED")[2])


SCRIPTS = ("dashboard/app.py",)


def below(name: str) -> list[str]:
    """``name`` and, for a package, every module in it; pages that are scripts are left out, they run on import."""
    folder = ROOT.joinpath(*name.split("."))
    if not folder.is_dir():
        return [name]
    files = sorted(file for file in folder.rglob("*.py") if file.relative_to(ROOT).as_posix() not in SCRIPTS)
    return [module_of(file) for file in files]


@pytest.mark.parametrize("name", LIGHT)
def test_import_is_light(name: str, tmp_path: Path) -> None:
    assert heavy_after(f"import {', '.join(below(name))}", tmp_path) == []


def test_a_heavy_import_would_be_seen(tmp_path: Path) -> None:
    assert heavy_after("import ray", tmp_path) == ["ray"]


def test_the_dashboard_is_light_while_it_runs(tmp_path: Path) -> None:
    ingest(tmp_path / "store", wait=60)
    code = (
        "import os\n"
        f"os.environ['STILLROOM_STORE'] = {str(tmp_path / 'store')!r}\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"app = AppTest.from_file({str(ROOT / 'dashboard' / 'app.py')!r}, default_timeout=60).run()\n"
        "assert not app.exception, app.exception\n"
    )
    assert heavy_after(code, tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["methods"],
        ["methods", "opsd"],
        ["benchmarks"],
        ["plans"],
        ["compare", "--help"],
        ["doctor", "--help"],
        ["query", "select 1 as one"],
        ["query", "--json", "select 1 as one"],
        ["status"],
    ],
    ids=" ".join,
)
def test_command_is_light(arguments: list[str], tmp_path: Path) -> None:
    ingest(tmp_path / "store", wait=60)  # makes an empty store and publishes it
    assert heavy_after(command(arguments, tmp_path / "store", exit_code=0), tmp_path) == []


def test_compare_without_results_is_light(tmp_path: Path) -> None:
    assert heavy_after(command(["compare"], tmp_path / "store", exit_code=2), tmp_path) == []


def command(arguments: list[str], store: Path, exit_code: int) -> str:
    """Python that runs ``stillroom`` with ``arguments`` and goes on if it exits as it should."""
    return (
        "import os\n"
        f"os.environ['STILLROOM_STORE'] = {str(store)!r}\n"
        "from flows.cli import main\n"
        "code = 0\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    code = end.code or 0\n"
        f"assert code == {exit_code}, f'exit code {{code}}'\n"
    )
