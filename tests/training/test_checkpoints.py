from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from training.checkpoints import (
    CheckpointError,
    SegmentReport,
    load_segment,
    release,
    save_segment,
    segment_report,
    write_json,
)


def _save(run: Path, segment: int, *, finished: bool = False, value: float = 1.0) -> SegmentReport:
    tensors = {"student": {"w": torch.full((3, 2), value)}, "optimiser": {"step/w": torch.tensor(float(segment))}}
    state: dict[str, Any] = {"run_id": "r", "update": segment * 10, "cost": {"rollout_tokens": segment * 5.0}}
    return save_segment(run, segment, tensors, state, first_update=segment * 10 - 9, finished=finished)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = _save(tmp_path, 1, value=0.1)

    report, tensors, state = load_segment(tmp_path, 1)

    assert report == saved == segment_report(tmp_path, 1)
    assert (report.first_update, report.last_update, report.finished) == (1, 10, False)
    assert report.cost == {"rollout_tokens": 5.0} and state["update"] == 10
    assert torch.equal(tensors["student"]["w"], torch.full((3, 2), 0.1))
    assert set(report.checksums) == {"student.safetensors", "optimiser.safetensors", "state.json"}


def test_a_segment_is_done_only_with_report_and_intact_checkpoint(tmp_path: Path) -> None:
    assert segment_report(tmp_path, 1) is None
    report = _save(tmp_path, 1)
    assert segment_report(tmp_path, 1) is not None

    weights = tmp_path / report.checkpoint / "student.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert segment_report(tmp_path, 1) is None
    weights.unlink()
    assert segment_report(tmp_path, 1) is None
    weights.write_bytes(content)
    assert segment_report(tmp_path, 1) is not None

    file = tmp_path / "segments" / "1.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert segment_report(tmp_path, 1) is None
    with pytest.raises(CheckpointError, match=r"segment 1 .* not done"):
        load_segment(tmp_path, 1)


def test_a_death_between_checkpoint_and_report_leaves_the_segment_to_be_done_again(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    (tmp_path / "segments" / "1.json").unlink()
    unfinished = tmp_path / "checkpoints" / ".00001.unfinished"
    unfinished.mkdir()
    (unfinished / "student.safetensors").write_text("half")

    assert segment_report(tmp_path, 1) is None
    _save(tmp_path, 1, value=2.0)

    assert torch.equal(load_segment(tmp_path, 1)[1]["student"]["w"], torch.full((3, 2), 2.0))
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == ["00001"]


def test_released_checkpoints_go_once_two_later_ones_are_there(tmp_path: Path) -> None:
    def present() -> list[str]:
        return sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir())

    for segment in (1, 2):
        _save(tmp_path, segment)
        assert release(tmp_path, segment) == []
    _save(tmp_path, 3)
    assert present() == ["00001", "00002", "00003"]
    assert release(tmp_path, 3) == [1]
    assert present() == ["00002", "00003"]
    assert all(segment_report(tmp_path, segment) is not None for segment in (1, 2, 3))
    with pytest.raises(CheckpointError, match=r"segment 1 .* was released"):
        load_segment(tmp_path, 1)


def test_a_checkpoint_whose_evaluation_is_not_done_stays(tmp_path: Path) -> None:
    for segment in range(1, 6):
        _save(tmp_path, segment)

    assert release(tmp_path, 2) == [2]
    assert segment_report(tmp_path, 1) is not None and (tmp_path / "checkpoints" / "00001").exists()


def test_the_final_checkpoint_stays(tmp_path: Path) -> None:
    _save(tmp_path, 1, finished=True)
    for segment in (2, 3):
        _save(tmp_path, segment)

    assert release(tmp_path, 1) == []
    assert segment_report(tmp_path, 1) is not None and (tmp_path / "checkpoints" / "00001").exists()


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "x.json"

    write_json(file, {"b": 1, "a": [1, 2]})
    write_json(file, {"b": 2})

    assert json.loads(file.read_text()) == {"b": 2}
    assert [entry.name for entry in file.parent.iterdir()] == ["x.json"]
