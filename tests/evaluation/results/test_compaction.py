"""Compacted spools hold every byte, count every line once, and nothing is lost wherever the compactor dies."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from evaluation.results import compacted as compacted_module
from evaluation.results.compacted import CompactedError, CompactedFile, write_compacted
from evaluation.results.compaction import CompactionError, compact, held_spools, merged
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.store import Store
from tests.bench.synthetic import synthetic_store

HIDDEN = {"quarantine": "EXCLUDE (found_at)", "schema_version": "EXCLUDE (database_id, revision)"}
"""What differs between two databases of the same facts: when a bad line was found, and the database's own name."""


def content(store: Path, *, but: tuple[str, ...] = ("compacted",)) -> dict[str, list[str]]:
    """Every row of every table but ``but``."""
    with open_snapshot(store) as con:
        tables = [name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {
            table: sorted(map(repr, con.execute(f"SELECT * {HIDDEN.get(table, '')} FROM {table}").fetchall()))
            for table in tables
            if table not in but
        }


def step(run: str, update: int, attempt: int = 1) -> StepRecord:
    return StepRecord(run, update, 0, {"loss": update / 3 + attempt, "nan": None}, {"rollout_tokens": 1.0}, 1.0)


def write_steps(store: Path, run: str, updates: int, *, attempt: int = 1) -> Path:
    with Spool(store / "runs" / run, role="trainer", attempt=attempt) as spool:
        for update in range(1, updates + 1):
            spool.append(step(run, update, attempt))
    return spool.path


def awkward_spools(folder: Path) -> dict[str, bytes]:
    """Spools as crashes leave them: torn, empty, with lines that are no text, blank lines, one very long line."""
    whole = b'{"kind":"step","a":1}\n'
    return {
        "a-1-1.jsonl": whole * 3,
        "b-1-1.jsonl": whole + b'{"kind":"st',
        "c-1-1.jsonl": b"",
        "d-1-1.jsonl": b"\n\n\xff\xfe\x00\n" + b"x" * 5000 + b"\n\n",
        "e-1-1.jsonl": b"no newline at all",
    }


@pytest.mark.parametrize("read_bytes", [7, 64, 8 * 2**20])
def test_every_byte_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
    monkeypatch.setattr("evaluation.results.sources.READ_BYTES", read_bytes)
    run = tmp_path / "runs" / "r"
    (run / "spool").mkdir(parents=True)
    texts = awkward_spools(tmp_path)
    for name, text in texts.items():
        (run / "spool" / name).write_bytes(text)
    with held_spools(run) as (spools, still_open):
        file = write_compacted(run / "compacted", merged(spools, []))
    assert still_open == 0
    again = CompactedFile.open(file.path)
    again.verify()
    assert [spool.name for spool in again.spools] == sorted(texts)
    for spool in again.spools:
        text = texts[spool.name]
        assert b"".join(again.blocks(spool)) == text and (spool.size, spool.lines) == (len(text), text.count(b"\n"))
        for start in {0, *(index + 1 for index, byte in enumerate(text) if byte == 10)}:
            assert b"".join(again.blocks(spool, start)) == text[start:]
    with duckdb.connect() as con:  # any program that reads Parquet can read the lines
        kinds = con.execute(f"SELECT spool, kind, count(*) FROM '{file.path}' GROUP BY ALL ORDER BY ALL").fetchall()
    assert ("a-1-1.jsonl", "step", 3) in kinds and ("d-1-1.jsonl", None, 5) in kinds


def test_a_rebuild_from_compacted_runs_has_the_same_bits(tmp_path: Path) -> None:
    runs = synthetic_store(tmp_path, runs=5, updates=12, completion_bytes=0, ingested=False)
    write_steps(tmp_path, runs[1].run_id, 12, attempt=2)
    folder = tmp_path / "runs" / runs[2].run_id / "spool"
    (folder / "host-7-7.jsonl").write_bytes(b"bad\n" + b'{"torn')
    ingest(tmp_path)
    before = content(tmp_path)
    rebuild(tmp_path)
    assert content(tmp_path) == before
    sizes = {path.parts[-3]: 0 for path in Store(tmp_path).spool_files()}
    for run in runs[:4]:
        done = compact(tmp_path, run.run_id)
        assert done.spools >= 3 and done.still_open == 0 and 0 < done.bytes_after < done.bytes_before
    assert len(Store(tmp_path).compacted_files()) == 4 and len(Store(tmp_path).spool_files()) == 3 and len(sizes) == 5
    report = ingest(tmp_path)
    assert (report.lines, report.replaced, report.published, report.compacted) == (0, (), False, 4)
    assert content(tmp_path) == before
    report = rebuild(tmp_path)
    assert report.rebuilt and report.damaged == ()
    after = content(tmp_path)
    assert after == before and before["quarantine"] and before["step_costs"] and before["ledger"]


def test_lines_that_were_not_ingested_yet_are_read_from_the_compacted_file(tmp_path: Path) -> None:
    path = write_steps(tmp_path, "r", 5)
    ingest(tmp_path)
    with path.open("ab") as file:  # a later process of the same run would have its own spool; the bytes are what counts
        file.write(path.read_bytes().splitlines(keepends=True)[0].replace(b'"seq":0', b'"seq":9'))
    write_steps(tmp_path, "r", 3, attempt=2)
    compact(tmp_path, "r")
    assert ingest(tmp_path).lines == 4
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*) FROM step_costs").fetchone() == (9,)
        assert con.execute("SELECT count(*), max(attempt) FROM latest_step_costs").fetchone() == (5, 2)
    assert ingest(tmp_path).lines == 0


def test_a_spool_that_is_still_written_stays(tmp_path: Path) -> None:
    write_steps(tmp_path, "r", 2)
    with Spool(tmp_path / "runs" / "r", role="regrader", attempt=1) as spool:
        spool.append(step("r", 3))
        done = compact(tmp_path, "r")
        assert (done.spools, done.still_open) == (1, 1)
        spool.append(step("r", 4))
    assert [path for path in Store(tmp_path).spool_files()] == [spool.path]
    ingest(tmp_path)
    done = compact(tmp_path, "r")
    assert (done.spools, done.still_open) == (1, 0) and len(Store(tmp_path).compacted_files()) == 1
    rebuild(tmp_path)
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT update FROM steps WHERE name = 'loss' ORDER BY 1").fetchall() == [
            (1,),
            (2,),
            (3,),
            (4,),
        ]
    assert compact(tmp_path, "r").spools == 0


def test_a_spool_compacted_away_as_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    real, taken = fcntl.flock, []

    def flock(file: int, operation: int) -> None:
        if not taken:
            taken.extend((tmp_path / "runs" / "r" / "spool").glob("*.jsonl"))
            taken[0].unlink()
        real(file, operation)

    monkeypatch.setattr("evaluation.results.spool.fcntl.flock", flock)
    path = write_steps(tmp_path, "r", 1)
    assert len(taken) == 1 and path != taken[0] and path.read_bytes().count(b"\n") == 1


def test_two_copies_that_differ_are_refused_and_kept(tmp_path: Path) -> None:
    path = write_steps(tmp_path, "r", 2)
    text = path.read_bytes()
    compact(tmp_path, "r")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text[: len(text) // 2] + b"#" * len(text))
    with pytest.raises(CompactionError, match="differ"):
        compact(tmp_path, "r")
    assert path.exists() and len(Store(tmp_path).compacted_files()) == 1
    path.write_bytes(text + text.splitlines(keepends=True)[0])  # one that has grown is its continuation
    assert compact(tmp_path, "r").spools == 1
    file = CompactedFile.open(Store(tmp_path).compacted_files()[0])
    assert [spool.lines for spool in file.spools] == [3]


def test_what_does_not_come_back_from_the_disk_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_steps(tmp_path, "r", 2)
    real = compacted_module._rows

    def wrong(name: str, start: int, block: bytes) -> pa.Table:
        return real(name, start, block[:-9] + b"#########")

    monkeypatch.setattr(compacted_module, "_rows", wrong)
    with pytest.raises(CompactedError):
        compact(tmp_path, "r")
    assert path.exists() and not list((tmp_path / "runs" / "r" / "compacted").iterdir())


@pytest.mark.parametrize("harm", ["truncated", "flipped", "other"])
def test_a_damaged_compacted_file_is_told_and_stops_nothing(tmp_path: Path, harm: str) -> None:
    write_steps(tmp_path, "r", 200)
    compact(tmp_path, "r")
    write_steps(tmp_path, "other", 2)
    file = Store(tmp_path).compacted_files()[0]
    good = file.read_bytes()
    half = len(good) // 2
    bad = {
        "truncated": good[:-20],
        "flipped": good[:half] + bytes([good[half] ^ 255]) + good[half + 1 :],
        "other": b"PAR1",
    }[harm]
    file.write_bytes(bad)
    report = rebuild(tmp_path)
    if harm == "flipped":
        with pytest.raises(CompactedError, match=r"r/compacted"):
            CompactedFile.open(file).verify()
    assert len(report.damaged) == 1 and file.name in report.damaged[0]
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*) FROM step_costs WHERE run_id = 'other'").fetchone() == (2,)
    file.write_bytes(good)
    report = ingest(tmp_path)
    assert report.damaged == ()
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*), count(DISTINCT seq) FROM step_costs WHERE run_id = 'r'").fetchone() == (
            200,
            200,
        )


def _compact_until(store: Path, call: int) -> None:
    """Compact run r and die at the ``call``-th call that changes the disk."""
    left = [call]

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def doomed(*arguments: object, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return doomed

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir")):
        setattr(owner, name, dying(getattr(owner, name)))
    compact(store, "r")
    os._exit(0)


def steps_of(store: Path) -> list[tuple]:
    with duckdb.connect(str(store / "results.duckdb"), read_only=True) as con:
        sql = "SELECT attempt, seq, name, value FROM steps JOIN step_costs USING (run_id, writer, seq) ORDER BY ALL"
        return con.execute(sql).fetchall()


def compact_and_die(store: Path, call: int, *, ingested: bool) -> bool:
    """Whether the compactor got to its end before the ``call``-th change; whatever it did, all 16 values are there."""
    write_steps(store, "r", 3)
    compact(store, "r")
    write_steps(store, "r", 5, attempt=2)
    if ingested:
        ingest(store, publish=False)
    process = multiprocessing.get_context("fork").Process(target=_compact_until, args=(store, call))
    process.start()
    process.join()
    ingest(store, publish=False)
    found = steps_of(store)
    assert len(found) == 16 and len(set(found)) == 16, call
    compact(store, "r")
    (store / "results.duckdb").unlink()
    ingest(store, publish=False)
    assert steps_of(store) == found, call
    assert len(Store(store).compacted_files()) == 1 and not Store(store).spool_files()
    assert not list((store / "runs" / "r" / "compacted").glob(".*"))
    return process.exitcode == 0


def test_killed_at_some_steps_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    ended = [compact_and_die(tmp_path / str(call), call, ingested=call % 2 == 0) for call in (4, 9)]
    assert not all(ended)


@pytest.mark.slow
@pytest.mark.parametrize("ingested", [False, True])
def test_killed_at_every_step_nothing_is_lost_or_doubled(tmp_path: Path, ingested: bool) -> None:
    for call in range(1, 40):
        if compact_and_die(tmp_path / str(call), call, ingested=ingested):
            assert call > 8
            return
    raise AssertionError("it never ended")
