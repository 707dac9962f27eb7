"""The guards that keep generic package names safe, and the promises of pyproject.toml and infra/constraints.txt."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "training", "evaluation", "dashboard")

NAMED_LIKE_STDLIB = {"evaluation.statistics", "evaluation.grading.math", "evaluation.grading.code"}
"""The agreed layout has these names. They could only shadow the library's if a file beside them were run by its path,
which nothing here does."""


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def tracked_files() -> tuple[Path, ...]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: the tracked files are unknown")
    names = subprocess.run(
        ["git", "-c", "core.quotepath=off", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    # What a commit in preparation deletes is still listed.
    return tuple(Path(name) for name in names if name and (ROOT / name).exists())


def python_folders(top: str) -> set[Path]:
    """Every folder below ``top`` that holds Python files, and the folders above them up to ``top``."""
    folders: set[Path] = set()
    for file in (ROOT / top).rglob("*.py"):
        for folder in file.relative_to(ROOT).parents:
            if folder.parts:
                folders.add(folder)
    return folders


def modules() -> list[str]:
    names = []
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            path = file.relative_to(ROOT).with_suffix("")
            names.append(".".join(path.parts[:-1] if path.name == "__init__" else path.parts))
    return sorted(names)


# --- guard 1: what is shipped is named, and is not published ----------------------------------------------------


def test_packages_are_listed_and_private() -> None:
    project = pyproject()
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == list(PACKAGES)
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]


# --- guard 2: every folder is a package -------------------------------------------------------------------------


@pytest.mark.parametrize("top", [*PACKAGES, "tests"])
def test_every_folder_with_python_has_init(top: str) -> None:
    missing = [str(folder) for folder in sorted(python_folders(top)) if not (ROOT / folder / "__init__.py").exists()]
    assert not missing, f"add an empty __init__.py to {', '.join(missing)}"


def test_infra_holds_no_python() -> None:
    assert not list((ROOT / "infra").rglob("*.py"))


def test_pytest_puts_the_repository_first() -> None:
    assert pyproject()["tool"]["pytest"]["ini_options"]["pythonpath"] == ["."]


# --- guard 4: the names are ours --------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_imported_from_the_repository(package: str) -> None:
    file = importlib.import_module(package).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(ROOT), f"{package} comes from {file}"


def test_packages_are_imported_from_the_repository_in_another_folder(tmp_path: Path) -> None:
    # A worker process starts elsewhere and has only the installed project to go by.
    code = f"import {', '.join(PACKAGES)}; print(*(p.__file__ for p in ({', '.join(PACKAGES)})), sep='\\n')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    assert [Path(file).resolve().parent for file in shown] == [ROOT / package for package in PACKAGES]


@pytest.mark.parametrize("name", [*PACKAGES, "tests", "infra"])
def test_no_other_distribution_owns_our_names(name: str) -> None:
    owners = set(importlib.metadata.packages_distributions().get(name, [])) - {"stillroom"}
    assert not owners, f"{', '.join(owners)} installs a package called {name}"


def test_no_module_is_named_like_a_library() -> None:
    libraries = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    clashes = {name for name in modules() if name.rpartition(".")[2] in libraries}
    assert clashes - NAMED_LIKE_STDLIB == set()


# --- the wheel --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wheel_holds_the_four_packages_with_their_data(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {Path(name).parts[0] for name in shipped} == set(PACKAGES)
    tracked = {file.as_posix() for file in tracked_files() if file.parts[0] in PACKAGES}
    assert tracked - shipped == set()
    assert not [name for name in shipped if name.endswith(".pyc")]
    assert {Path(name).suffix for name in shipped} >= {".py", ".sql", ".yaml", ".safetensors"}


# --- versions ---------------------------------------------------------------------------------------------------


def constraint_lines() -> list[str]:
    lines = (ROOT / "infra" / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    return dict(line.split("==") for line in constraint_lines())


def declared_requirements() -> list[Requirement]:
    project = pyproject()["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    return [Requirement(text) for text in texts]


def test_constraints_are_plain_pins() -> None:
    # No index or file lines, and no +cpu: the list must serve every machine.
    lines = constraint_lines()
    wrong = [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]*", line)]
    assert not wrong
    assert len(pins()) == len(lines), "a package is pinned twice"


@pytest.mark.parametrize("requirement", declared_requirements(), ids=str)
def test_pins_satisfy_pyproject(requirement: Requirement) -> None:
    pin = pins().get(canonicalize_name(requirement.name))
    assert pin is not None, f"pin {requirement.name} in infra/constraints.txt"
    assert requirement.specifier.contains(pin), f"{requirement} excludes the pinned {pin}"


def test_every_installed_dependency_is_pinned() -> None:
    """Walk the requirements from pyproject.toml through what is installed; torch pins its CUDA libraries itself."""
    seen: set[str] = set()
    waiting = [(requirement, "") for requirement in declared_requirements()]
    unpinned = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted_extra in ("", *sorted(requirement.extras)):
            if f"{name}[{wanted_extra}]" in seen:
                continue
            seen.add(f"{name}[{wanted_extra}]")
            try:
                further = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            waiting += [(Requirement(text), wanted_extra) for text in further]
            if name not in pins() and not re.match(r"cuda-|nvidia-|triton$", name):
                unpinned.add(name)
    assert not unpinned, f"pin in infra/constraints.txt: {', '.join(sorted(unpinned))}"


# --- what the repository must not say ---------------------------------------------------------------------------

# Written in parts, so that this file passes its own test.
MACHINE_FOLDERS = ("work" + "/", "opt" + "/", "root" + "/", "home" + "/", "Users" + "/")
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "download.pytorch" + ".org",
    "registry.npmjs" + ".org",
    "deb.debian" + ".org",
    "conda" + ".anaconda.org",
)
FORBIDDEN = {
    "a machine's path": re.compile(f"(?<![A-Za-z0-9_.~-])/({'|'.join(MACHINE_FOLDERS)})"),
    "a registry's host": re.compile("|".join(map(re.escape, REGISTRY_HOSTS))),
    "an index option": re.compile("--(extra-)?index" + "-url|--default" + "-index"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_tracked_files_name_no_machine_and_no_registry(what: str) -> None:
    found = []
    for file in tracked_files():
        content = (ROOT / file).read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), 1):
            if FORBIDDEN[what].search(line):
                found.append(f"{file}:{number}: {line.strip()[:120]}")
    assert not found


def test_nothing_runs_a_file_by_its_path() -> None:
    """A script run by path puts its own folder first, where our module names would shadow the standard library's."""
    by_path = re.compile(
        r"\b(?:python[\d.]*|\$\(BIN\)/python|sys\.executable)[\"',\s]+(?:-[IBSE]+[\"',\s]+)*[\w./]+\.py\b"
    )
    files = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / ".pre-commit-config.yaml", *(ROOT / "infra").glob("*.sh")]
    files += [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    found = [f"{file.relative_to(ROOT)}: {line}" for file in files for line in by_path.findall(file.read_text())]
    assert found == []
    # Streamlit can only run a file; the app it is given is the one exception.
    assert by_path.search("python dashboard/app.py")


def test_no_lock_file_is_tracked() -> None:
    names = {file.name for file in tracked_files()}
    assert not names & {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pylock.toml"}
