"""The sandboxes of this machine, for tests that run programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.grading.sandbox import Sandbox, SandboxUnavailableError, find_sandbox
from evaluation.grading.sandbox.landlock import Sandlock, find_library
from evaluation.grading.sandbox.launch import pythons


def working(make: Callable[[Path, Path], Sandbox]) -> Sandbox | None:
    """The first of the sandboxes made for this machine's Pythons (interpreter, prefix) that runs a program."""
    candidates = (make(python, prefix) for python, prefix in pythons())
    return next((sandbox for sandbox in candidates if sandbox.run("print(1)").stdout == b"1\n"), None)


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return find_sandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sandlock() -> Sandbox:
    library = find_library()
    if library is None:
        pytest.skip("sandlock is for Linux")
    found = working(lambda python, prefix: Sandlock(library, python, prefix))
    if found is None:
        pytest.skip("this kernel has no Landlock that sandlock can use")
    return found
