"""Models made on first use: once, whole or not at all."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from training.base_models.cache import Report, make_once


def make_file(destination: Path, report: Report) -> None:
    report(0, 1, "")
    time.sleep(0.2)
    (destination / "config.json").write_text("{}")
    with (destination.parent / "made.log").open("a") as log:
        log.write("made\n")


def make_in_a_process(folder: Path) -> None:
    make_once(folder, "test", make_file)


def test_two_processes_make_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=make_in_a_process, args=(tmp_path / "model",)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "made.log").read_text() == "made\n"
    assert (tmp_path / "model" / "config.json").read_text() == "{}"
    assert not [*tmp_path.glob("model.making-*")]


def test_a_failed_maker_leaves_no_folder_and_the_next_one_starts_clean(tmp_path: Path) -> None:
    def fail(destination: Path, report: Report) -> None:
        (destination / "half.bin").write_text("half")
        raise RuntimeError("killed half-way")

    folder = tmp_path / "model"
    with pytest.raises(RuntimeError, match="half-way"):
        make_once(folder, "test", fail)
    assert not folder.exists()
    make_once(folder, "test", make_file)
    assert [file.name for file in folder.iterdir()] == ["config.json"]
    assert not [*tmp_path.glob("model.making-*")]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    folder = make_once(tmp_path / "model", "test", make_file)
    assert make_once(folder, "test", make_file) == folder
    assert (tmp_path / "made.log").read_text() == "made\n"
