"""One store on a shared folder, written by machines with one process id, clocks hours apart, and ingested by any."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from evaluation.results import ingest as ingest_module
from evaluation.results import spool as spool_module
from evaluation.results.compaction import compact
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.records import RunEvent, RunRecord, StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.store import Store
from tests.evaluation.results.test_compaction import content

HOUR = 3600.0


class Machine:
    """Pretends that this process is on ``host``, whose clock is ``skew`` seconds off."""

    def __init__(self, patch: pytest.MonkeyPatch, host: str, skew: float = 0.0) -> None:
        self.patch, self.host, self.skew = patch, host, skew

    def __enter__(self) -> None:
        real, real_ns = time.time(), time.time_ns()
        self.patch.setattr(spool_module.socket, "gethostname", lambda: self.host)
        self.patch.setattr(spool_module.time, "time", lambda: real + self.skew)
        self.patch.setattr(spool_module.time, "time_ns", lambda: real_ns + int(self.skew * 1e9))

    def __exit__(self, *error: object) -> None:
        self.patch.undo()


def write(store: Path, run: str, attempt: int, updates: range, status: str) -> Path:
    with Spool(store / "runs" / run, role="trainer", attempt=attempt) as spool:
        spool.append(RunRecord(run, "opsd", "tiny", 0, {}, {}, 1.0))
        for update in updates:
            spool.append(StepRecord(run, update, 0, {"loss": float(attempt)}, {}, float(update)))
        spool.append(RunEvent(run, attempt, status, 1.0))
    return spool.path


def test_a_run_that_goes_on_on_a_machine_whose_clock_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(monkeypatch, "left", skew=5 * HOUR):
        first = write(tmp_path, "r", 1, range(1, 6), "stopped")
    with Machine(monkeypatch, "right", skew=-5 * HOUR):
        second = write(tmp_path, "r", 2, range(4, 9), "done")
    assert first.name.startswith("left-") and second.name.startswith("right-")
    with Machine(monkeypatch, "third"):
        ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT status, attempts FROM run_status").fetchall() == [("done", 2)]
        found = con.execute("SELECT update, value FROM latest_steps ORDER BY update").fetchall()
        assert found == [(update, 1.0 if update < 4 else 2.0) for update in range(1, 9)]
        hosts = con.execute("SELECT host, lines FROM processes ORDER BY host").fetchall()
        assert hosts == [("left", 7), ("right", 7)]
    before = content(tmp_path)
    compact(tmp_path, "r")
    rebuild(tmp_path)
    assert content(tmp_path) == before


def test_two_machines_with_one_name_and_clock_share_no_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers are often all called the same and count their processes from 1; then creation decides."""
    now = [1_000]

    def ticking() -> int:
        now[0] += 1
        return now[0] // 3

    monkeypatch.setattr(spool_module.time, "time_ns", ticking)
    paths = {write(tmp_path, "r", 1, range(1, 2), "running") for _ in range(4)}
    assert len(paths) == 4
    assert ingest(tmp_path).lines == 12


def test_two_machines_ingest_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, host in enumerate(("left", "right", "left", "right")):
        with Machine(monkeypatch, host, skew=HOUR * number):
            write(tmp_path, f"run-{number}", 1, range(1, 4), "running")
            assert ingest(tmp_path).lines == 5
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*) FROM latest_steps").fetchone() == (12,)


def test_a_copy_without_times_is_the_same_store(tmp_path: Path) -> None:
    """Spools copied to another file system, some compacted there: nothing is read twice."""
    for run in ("a", "b"):
        write(tmp_path / "here", run, 1, range(1, 9), "done")
    ingest(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there", symlinks=True)
    for path in Store(tmp_path / "there").spool_files():
        os.utime(path, ns=(1, 1))
    compact(tmp_path / "there", "a")
    report = ingest(tmp_path / "there")
    assert (report.lines, report.replaced) == (0, ())
    assert content(tmp_path / "there", but=("compacted", "ledger")) == content(
        tmp_path / "here", but=("compacted", "ledger")
    )


def test_tables_of_an_older_version_are_made_again_from_compacted_runs(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write(tmp_path, run, 1, range(1, 9), "done")
    compact(tmp_path, "a")
    ingest(tmp_path)
    before = content(tmp_path)
    with duckdb.connect(str(tmp_path / "results.duckdb")) as con:  # as a version without these had it
        con.execute("DROP TABLE compacted")
        con.execute("ALTER TABLE step_costs DROP COLUMN gpu_seconds")
        con.execute("UPDATE schema_version SET schema_sha256 = 'older'")
        con.execute("DELETE FROM ledger")
    report = ingest(tmp_path)
    assert report.rebuilt and report.lines == 20 and report.compacted == 1
    assert content(tmp_path) == before


def test_lines_go_in_by_batches_not_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of inserts does not grow with the number of rows."""
    calls: list[str] = []
    real = ingest_module._Pass._insert

    def counted(pass_: ingest_module._Pass, table: str, rows: pa.Table) -> None:
        calls.append(table)
        real(pass_, table, rows)

    monkeypatch.setattr(ingest_module._Pass, "_insert", counted)
    counts = []
    for updates in (10, 1000):
        calls.clear()
        write(tmp_path / str(updates), "r", 1, range(1, updates + 1), "done")
        ingest(tmp_path / str(updates), publish=False)
        counts.append(len(calls))
    assert counts[0] == counts[1] <= 6
