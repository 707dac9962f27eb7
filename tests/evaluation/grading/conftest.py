"""The sandbox of this machine, for tests that run programs."""

from __future__ import annotations

import pytest

from evaluation.grading.sandbox import Sandbox, SandboxUnavailableError, find_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return find_sandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
