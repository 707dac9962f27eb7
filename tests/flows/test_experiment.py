"""Which segment an interrupted run goes on from, whatever became of its checkpoints (real files, no Ray)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flows.run_folder import RunFolder
from training.checkpoints import save_segment, write_json


def save(folder: RunFolder, segment: int, finished: bool = False) -> None:
    save_segment(
        folder.path,
        segment,
        {"student": {"weight": torch.full((2,), float(segment))}},
        {"update": segment * 2, "cost": {}},
        first_update=segment * 2 - 1,
        finished=finished,
    )


def damage(folder: RunFolder, segment: int) -> None:
    report = folder.recorded_segment(segment)
    assert report is not None
    with (folder.path / report.checkpoint / "student.safetensors").open("ab") as file:
        file.write(b"x")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for segment in (1, 2, 3, 4):
        save(folder, segment)
        write_json(tmp_path / "evaluations" / f"{segment * 2}.json", {"update": segment * 2})
        folder.release(segment)
    return folder


def test_the_latest_intact_checkpoint_is_gone_on_from(folder: RunFolder) -> None:
    assert folder.last_intact_segment() == 4
    assert [folder.has_checkpoint(segment) for segment in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_damaged_backup_stands_in_nobodys_way(folder: RunFolder) -> None:
    damage(folder, 3)
    assert folder.last_intact_segment() == 4
    assert folder.recorded_segment(3) is not None


def test_a_damaged_last_checkpoint_costs_one_segment(folder: RunFolder) -> None:
    damage(folder, 4)
    assert folder.last_intact_segment() == 3


def test_a_new_run_starts_at_the_beginning(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "new").last_intact_segment() == 0
