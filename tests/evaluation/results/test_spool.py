"""What a worker may rely on when it appends, and what it finds out when the disk refuses."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.results import spool as spool_module
from evaluation.results.lines import RECORDS, parse_line
from evaluation.results.records import EvaluationRecord, GradeRecord, RunEvent, StepRecord
from evaluation.results.spool import Spool, SpoolWriteError, read_samples, write_samples


def step(update: int, **metrics: float | None) -> StepRecord:
    return StepRecord("r", update, 0, dict(metrics), {"rollout_tokens": 5.0}, 1.0)


def lines(spool: Spool) -> list[dict]:
    return [json.loads(line) for line in spool.path.read_bytes().splitlines()]


def test_a_line_says_who_wrote_what(tmp_path: Path) -> None:
    with Spool(tmp_path, role="trainer", attempt=2) as spool:
        spool.append(step(7, loss=0.5))
        spool.append(RunEvent("r", 1, "done", 2.0))
    first, second = lines(spool)
    assert first["v"] == 1 and first["kind"] == "step" and first["key"] == "7" and first["run_id"] == "r"
    assert first["attempt"] == 2 and first["role"] == "trainer" and first["pid"] == os.getpid()
    assert [first["seq"], second["seq"]] == [0, 1]
    assert first["writer"] == spool.path.stem == spool.writer
    assert first["data"] == {
        "update": 7,
        "segment": 0,
        "metrics": {"loss": 0.5},
        "cost": {"rollout_tokens": 5.0},
        "at": 1.0,
    }
    assert spool.path.parent == tmp_path / "spool" and spool.path.name.endswith(".jsonl")


def test_lines_are_in_the_file_before_close(tmp_path: Path) -> None:
    spool = Spool(tmp_path, role="trainer", attempt=1)
    spool.append(step(1))
    assert len(lines(spool)) == 1
    spool.flush()
    spool.close()
    spool.close()
    with pytest.raises(ValueError, match="is closed"):
        spool.append(step(2))


def test_non_finite_numbers_become_null_and_are_counted(tmp_path: Path) -> None:
    with Spool(tmp_path, role="trainer", attempt=1) as spool:
        spool.append(step(1, loss=float("nan"), norm=float("inf"), kept=1.0, missing=None))
        metrics: Any = {"loss": np.float32(0.5), "low": -np.inf}
        spool.append(StepRecord("r", 2, 0, metrics, {}, 1.0))
    first, second = lines(spool)
    assert first["data"]["metrics"] == {"loss": None, "norm": None, "kept": 1.0, "missing": None}
    assert second["data"]["metrics"] == {"loss": 0.5, "low": None}
    assert spool.non_finite == 3


def test_numpy_numbers_are_numbers_and_objects_are_refused_by_name(tmp_path: Path) -> None:
    with Spool(tmp_path, role="trainer", attempt=1) as spool:
        spool.append(RunEvent("r", 1, "done", 2.0, details={"n": np.int64(3), "v": np.array(0.5), "t": (1, 2)}))
        assert lines(spool)[0]["data"]["details"] == {"n": 3, "v": 0.5, "t": [1, 2]}
        with pytest.raises(ValueError, match=r"run_event\.data\.details\.what is a object"):
            spool.append(RunEvent("r", 2, "done", 2.0, details={"what": object()}))
        with pytest.raises(ValueError, match=r"unknown cost \['tokens'\]"):
            spool.append(StepRecord("r", 1, 0, {}, {"tokens": 1.0}, 1.0))
    assert len(lines(spool)) == 1


@pytest.mark.parametrize("text", ["line\nbreak\r\u2028", "nul \x00", "half a pair \ud83d", "ünï 💡 \ud83d\udca1"])
def test_any_text_stays_one_valid_line(tmp_path: Path, text: str) -> None:
    with Spool(tmp_path, role="evaluator", attempt=1) as spool:
        spool.append(GradeRecord("r", "k", "exact", "1", "fail", 0.0, text, None, None, None))
    (line,) = spool.path.read_bytes().split(b"\n")[:-1]
    extracted = parse_line(line)["data"]["extracted"]
    assert extracted == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_every_kind_of_record_passes_its_own_check(tmp_path: Path) -> None:
    """The factory writes all kinds; here only that the ingestor's schema is made for each of them."""
    kinds = {record.kind for record in RECORDS}
    assert kinds == {
        "run",
        "plan_cell",
        "run_event",
        "step",
        "rollout",
        "problem",
        "answer",
        "grade",
        "evaluation",
        "trace",
        "mark",
    }


def test_spools_never_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pid and the same clock reading, as after a reboot or in two threads."""
    readings = iter([5, 5, 5, 6, 6, 7])
    monkeypatch.setattr(spool_module.time, "time_ns", lambda: next(readings))
    spools = [Spool(tmp_path, role="trainer", attempt=1) for _ in range(3)]
    assert len({spool.path for spool in spools}) == 3
    for spool in spools:
        spool.close()


def test_threads_may_share_a_spool(tmp_path: Path) -> None:
    with Spool(tmp_path, role="trainer", attempt=1) as spool:
        threads = [threading.Thread(target=lambda: [spool.append(step(u)) for u in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [line["seq"] for line in lines(spool)] == list(range(200))


def test_a_forked_child_must_open_its_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path, role="trainer", attempt=1)
    spool.pid += 1  # what a child sees after a fork
    with pytest.raises(RuntimeError, match="open a Spool of your own"):
        spool.append(step(1))
    spool.close()


def test_a_short_write_on_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(tmp_path, role="trainer", attempt=1) as spool:
        spool.append(step(1))
        before = spool.path.read_bytes()
        real, calls = os.write, []

        def full_disk(file: int, data: bytes) -> int:
            calls.append(len(data))
            if len(calls) == 1:
                return real(file, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(spool_module.os, "write", full_disk)
        with pytest.raises(SpoolWriteError, match="No space left") as refused:
            spool.append(step(2))
        assert refused.value.errno == errno.ENOSPC and refused.value.filename == str(spool.path)
        assert spool.path.read_bytes() == before
        monkeypatch.undo()
        spool.append(step(2))
    assert [line["seq"] for line in lines(spool)] == [0, 1]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    with pytest.raises(SpoolWriteError, match="cannot write results"):
        Spool(tmp_path, role="trainer", attempt=1)
    with pytest.raises(ValueError, match="attempt counts from 1"):
        Spool(tmp_path, role="trainer", attempt=0)


def test_samples_are_written_whole_and_the_same_again(tmp_path: Path) -> None:
    rows = [{"text": "a", "ids": [1, 2]}, {"text": "half \ud83d", "note": None, "ids": []}]
    relative = write_samples(tmp_path, "answers", "000010-addition-test", rows)
    assert relative == "samples/answers-000010-addition-test.parquet"
    first = (tmp_path / relative).read_bytes()
    assert write_samples(tmp_path, "answers", "000010-addition-test", rows) == relative
    assert (tmp_path / relative).read_bytes() == first
    table = read_samples(tmp_path, relative)
    assert table.to_pylist() == [
        {"text": "a", "ids": [1, 2], "note": None},
        {"text": "half \ufffd", "ids": [], "note": None},
    ]
    assert read_samples(tmp_path, relative, [1]).to_pylist()[0]["text"] == "half \ufffd"
    assert pq.ParquetFile(tmp_path / relative).metadata.row_group(0).column(0).compression == "ZSTD"
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["answers-000010-addition-test.parquet"]


def test_failed_samples_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(SpoolWriteError, match="No space left"):
        write_samples(tmp_path, "answers", "x", [{"a": 1}])
    assert list((tmp_path / "samples").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b"])
def test_sample_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        write_samples(tmp_path, "answers", name, [{"a": 1}])
    with pytest.raises(ValueError, match="leads out of"):
        read_samples(tmp_path, "../../etc/passwd")
    with pytest.raises(ValueError, match="no rows"):
        write_samples(tmp_path, "answers", "x", [])


def test_cost_keys_cover_the_documented_ones() -> None:
    assert StepRecord.__doc__ is not None
    for key in spool_module.COST_KEYS:
        assert key in StepRecord.__doc__
    assert EvaluationRecord("r", 1, "b", "test", 1, 1, {}, 1.0, 1.0).key == "1/b/test"
