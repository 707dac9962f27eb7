"""The number of grading workers: its default, the setting, and what is refused."""

from __future__ import annotations

import pytest

from evaluation.grading.workers import MOST, SETTING, grading_workers


def test_the_default_is_the_cores_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert 1 <= grading_workers() <= MOST


def test_the_setting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "12")
    assert grading_workers() == 12


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "", "1.5", "²"])
def test_anything_else_is_refused_with_the_name_of_the_setting(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(SETTING, wrong)
    with pytest.raises(ValueError, match=SETTING):
        grading_workers()
