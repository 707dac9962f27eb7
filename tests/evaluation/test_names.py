"""Which run the beginning of an id means."""

from __future__ import annotations

import pytest

from evaluation.names import UnknownRunError, run_meant

RUNS = ["opsd-s0-a1", "opsd-s0-a12", "opsd-s1-b", "grpo-s0-c"]


@pytest.mark.parametrize(
    ("beginning", "run"), [("g", "grpo-s0-c"), ("opsd-s1", "opsd-s1-b"), ("opsd-s0-a1", "opsd-s0-a1")]
)
def test_one_run_is_meant_or_the_one_that_is_named_in_full(beginning: str, run: str) -> None:
    assert run_meant(beginning, [*RUNS, *RUNS]) == run


@pytest.mark.parametrize(
    ("beginning", "message"),
    [
        ("opsd-s0", r"run 'opsd-s0' may be any of 2: opsd-s0-a1, opsd-s0-a12, …: type more of it"),
        ("opsd-s2-b", r"no run 'opsd-s2-b' in this store; did you mean 'opsd-s1-b'\?"),
        ("", r"no run '' in this store"),
    ],
)
def test_none_and_several_are_refused(beginning: str, message: str) -> None:
    with pytest.raises(UnknownRunError, match=message):
        run_meant(beginning, RUNS)
