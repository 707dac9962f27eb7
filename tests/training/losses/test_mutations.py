"""Planted faults: each must make at least one of a short list of checks fail, and without any all pass.

The checks are compact forms of the tests beside this file. A fault that slips through means the tests have a hole.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.training.losses.faults.base_faults import BASE_FAULTS
from tests.training.losses.faults.checks import failed_checks
from tests.training.losses.faults.ratio_faults import RATIO_FAULTS
from tests.training.losses.faults.weight_faults import WEIGHT_FAULTS


def test_without_a_fault_every_check_passes() -> None:
    assert failed_checks() == []


@pytest.mark.parametrize("fault", [*BASE_FAULTS, *WEIGHT_FAULTS, *RATIO_FAULTS], ids=lambda fault: fault.__name__)
def test_every_fault_is_found(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert failed_checks(first=True) != []
