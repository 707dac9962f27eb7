"""What readers see: a whole state, always, and a newer one when they ask again."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from evaluation.results import snapshot as module
from evaluation.results.ingest import ingest
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import (
    KEPT_SNAPSHOTS,
    NoSnapshotError,
    PublishError,
    open_snapshot,
    publish,
    snapshot_version,
)
from evaluation.results.spool import Spool


def add_step(store: Path, update: int) -> None:
    with Spool(store / "runs" / "r", role="trainer", attempt=1) as spool:
        spool.append(StepRecord("r", update, 0, {"loss": 1.0}, {}, 1.0))
    ingest(store)


def count(con: duckdb.DuckDBPyConnection) -> int:
    row = con.execute("SELECT count(*) FROM steps").fetchone()
    assert row is not None
    return row[0]


def test_nothing_published_yet(tmp_path: Path) -> None:
    assert snapshot_version(tmp_path) is None
    with pytest.raises(NoSnapshotError, match="run `stillroom demo`"):
        open_snapshot(tmp_path)


def test_a_new_open_sees_the_new_state_beside_an_open_old_one(tmp_path: Path) -> None:
    """In one process, as in a dashboard: the old connection is still open when the new one is asked for."""
    add_step(tmp_path, 1)
    first = snapshot_version(tmp_path)
    with open_snapshot(tmp_path) as old:
        add_step(tmp_path, 2)
        assert snapshot_version(tmp_path) != first
        with open_snapshot(tmp_path) as new:
            assert (count(old), count(new)) == (1, 2)
            assert count(new.cursor()) == 2
        add_step(tmp_path, 3)
        add_step(tmp_path, 4)
        assert count(old) == 1  # its file has been deleted by now
    assert len(list((tmp_path / "snapshots").iterdir())) == KEPT_SNAPSHOTS


def test_publishing_nothing_new_keeps_the_version(tmp_path: Path) -> None:
    add_step(tmp_path, 1)
    version = snapshot_version(tmp_path)
    assert publish(tmp_path) is False and snapshot_version(tmp_path) == version


def test_a_snapshot_lost_is_published_again(tmp_path: Path) -> None:
    add_step(tmp_path, 1)
    (tmp_path / "results.ro.duckdb").resolve().unlink()
    assert snapshot_version(tmp_path) is None
    with pytest.raises(NoSnapshotError):
        open_snapshot(tmp_path)
    assert ingest(tmp_path).published
    with open_snapshot(tmp_path) as con:
        assert count(con) == 1


def test_leftovers_of_killed_publishes_are_removed(tmp_path: Path) -> None:
    add_step(tmp_path, 1)
    leftovers = [tmp_path / "snapshots" / "x-1.12-34.tmp", tmp_path / ".results.ro.12-34.tmp"]
    for leftover in leftovers:
        leftover.write_bytes(b"half a copy")
    add_step(tmp_path, 2)
    assert not any(leftover.exists() for leftover in leftovers)
    with open_snapshot(tmp_path) as con:
        assert count(con) == 2


def test_a_copy_that_fails_leaves_the_old_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_step(tmp_path, 1)
    version = snapshot_version(tmp_path)
    broken = module._COPY.replace("target.flush()", "raise OSError(28, 'No space left on device')")
    assert broken != module._COPY
    monkeypatch.setattr(module, "_COPY", broken)
    with pytest.raises(PublishError, match="No space left"):
        add_step(tmp_path, 2)
    assert snapshot_version(tmp_path) == version
    assert not list((tmp_path / "snapshots").glob("*.tmp"))
    monkeypatch.undo()
    assert ingest(tmp_path).published
    with open_snapshot(tmp_path) as con:
        assert count(con) == 2


def test_the_copy_is_the_file_byte_for_byte_without_copy_file_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems without it fall back to reading and writing."""
    monkeypatch.setattr(module, "_COPY", module._COPY.replace('"copy_file_range"', '"not_there"'))
    add_step(tmp_path, 1)
    assert (tmp_path / "results.ro.duckdb").read_bytes() == (tmp_path / "results.duckdb").read_bytes()
    monkeypatch.undo()
    add_step(tmp_path, 2)
    assert (tmp_path / "results.ro.duckdb").read_bytes() == (tmp_path / "results.duckdb").read_bytes()


def test_an_open_snapshot_never_blocks_the_ingest(tmp_path: Path) -> None:
    add_step(tmp_path, 1)
    with open_snapshot(tmp_path):
        assert ingest(tmp_path, wait=0).lines == 0
        add_step(tmp_path, 2)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (i INTEGER)",
        "DELETE FROM runs",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY runs TO 'out.csv'",
        "ATTACH ':memory:' AS other",
        "SET memory_limit = '10GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "INSTALL httpfs",
        "LOAD httpfs",
    ],
)
def test_the_connection_itself_is_read_only_and_locked(tmp_path: Path, statement: str) -> None:
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con, pytest.raises(duckdb.Error):
        con.execute(statement)


def test_the_snapshot_can_be_opened_where_nothing_can_be_written(tmp_path: Path) -> None:
    add_step(tmp_path, 1)
    folders = [tmp_path, tmp_path / "snapshots"]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with open_snapshot(tmp_path) as con:
            assert count(con) == 1
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert os.access(tmp_path, os.W_OK)
