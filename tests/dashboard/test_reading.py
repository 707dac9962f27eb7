"""Reads of the snapshot: cached on what was asked and the version, never stale, nothing held open."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from dashboard import health, reading
from dashboard.reading import QUERIES, Snapshot, published_version, query_text, store_path
from evaluation.results.ingest import ingest
from evaluation.results.records import RunRecord, StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from tests.dashboard.conftest import STUDY
from tests.dashboard.seen import open_databases
from tests.evaluation.results.factory import CELLS, Study, base_run_id, write_base, write_run

PARAMETERS = health.PARAMETERS | {
    "plan": "demo",
    "metric": "loss",
    "run_id": "demo-opsd-0",
    "benchmark": "addition",
    "split": "test",
    "update": 20,
}
SMALL = Study(seeds=(0,), updates=2, every=2, problems=3)


def snapshot_of(store: Path) -> Snapshot:
    version = published_version(store)
    assert version is not None
    return Snapshot(store, version)


@pytest.mark.parametrize("name", sorted(file.stem for file in QUERIES.glob("*.sql")))
def test_every_query_gives_rows(store: Path, name: str) -> None:
    wanted = {key: value for key, value in PARAMETERS.items() if f"${key}" in query_text(name)}
    rows = snapshot_of(store).table(name, **wanted)
    # The study has no traces.
    assert rows.empty == (name in ("run_traces", "traced_plans", "traces"))


def test_the_same_question_is_asked_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading._table.clear()
    opened = []
    monkeypatch.setattr(reading, "open_snapshot", lambda path: opened.append(path) or open_snapshot(path))
    snapshot = snapshot_of(store)
    for _ in range(5):
        snapshot.table("plan_cells", plan="demo")
    assert len(opened) == 1
    snapshot.table("plan_cells", plan="two-seeds")  # another parameter
    snapshot.table("plans")  # another query
    Snapshot(store, (0, 0)).table("plans")  # another version
    assert len(opened) == 4
    assert open_databases(store) == []


def test_what_is_read_may_be_changed_by_the_reader(store: Path) -> None:
    snapshot = snapshot_of(store)
    first = snapshot.table("plans")
    first.loc[:, "plan"] = "spoilt"
    assert "spoilt" not in set(snapshot.table("plans")["plan"])


def test_a_new_version_is_read_anew(tmp_path: Path) -> None:
    write_base(tmp_path, SMALL)
    ingest(tmp_path)
    before = snapshot_of(tmp_path)
    assert len(before.table("runs")) == 1
    write_run(tmp_path, SMALL, CELLS[0], 0)
    ingest(tmp_path)
    after = snapshot_of(tmp_path)
    assert after.version != before.version
    assert len(after.table("runs")) == 2


def test_a_reader_that_keeps_a_snapshot_open_hides_nothing_from_others(tmp_path: Path) -> None:
    write_base(tmp_path, SMALL)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as kept:
        write_run(tmp_path, SMALL, CELLS[0], 0)
        ingest(tmp_path)
        assert len(snapshot_of(tmp_path).table("runs")) == 2
        assert kept.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]


def test_many_sessions_read_while_results_are_published(tmp_path: Path) -> None:
    write_base(tmp_path, SMALL)
    ingest(tmp_path)
    counts: list[list[int]] = [[] for _ in range(4)]
    stop = threading.Event()
    errors: list[BaseException] = []

    def read(seen: list[int]) -> None:
        try:
            while not stop.is_set():
                seen.append(len(snapshot_of(tmp_path).table("runs")))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(seen,)) for seen in counts]
    for thread in threads:
        thread.start()
    for cell in CELLS:
        write_run(tmp_path, SMALL, cell, 0)
        ingest(tmp_path)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(seen == sorted(seen) for seen in counts)
    assert len(snapshot_of(tmp_path).table("runs")) == 1 + len(CELLS)
    assert open_databases(tmp_path) == []


def test_the_store_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STILLROOM_STORE", str(tmp_path / "a"))
    assert store_path() == tmp_path / "a"
    monkeypatch.setenv("STILLROOM_STORE", "")
    monkeypatch.chdir(tmp_path)
    assert store_path() == tmp_path / "store"


def test_texts_are_read_again_when_their_file_is_replaced(tmp_path: Path) -> None:
    write_base(tmp_path, SMALL)
    ingest(tmp_path)
    run = base_run_id(SMALL)
    file = f"samples/answers-0-{SMALL.benchmark}-test.parquet"
    before = snapshot_of(tmp_path).texts(run, file)
    assert list(before.columns) == ["completion"] and len(before) == 6
    (tmp_path / "runs" / run / file).write_bytes(b"PAR1 torn")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        snapshot_of(tmp_path).texts(run, file)


def test_texts_stay_within_the_run(store: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError)):
        snapshot_of(store).texts("demo-opsd-0", "../demo-opsd-1/spec.json")
    (outside := store / "runs" / "secret.parquet").write_bytes(b"PAR1")
    try:
        with pytest.raises(ValueError, match="leads out"):
            snapshot_of(store).texts("demo-opsd-0", "../secret.parquet")
    finally:
        outside.unlink()


def test_the_snapshot_cannot_be_written(store: Path) -> None:
    with open_snapshot(store) as con, pytest.raises(duckdb.Error):
        con.execute("DELETE FROM runs")
    assert len(snapshot_of(store).table("plan_cells", plan="demo")) == 1 + 3 * len(STUDY.cells)


@pytest.mark.parametrize(
    ("budget", "cost", "percent"),
    [
        ({"kind": "updates", "updates": 4}, {}, 75.0),
        ({"kind": "rollout_tokens", "tokens": 1000}, {"rollout_tokens": 1020.0}, 102.0),
        ({"kind": "rollout_tokens", "tokens": 1000}, {"reference_tokens": 500.0}, 50.0),
        ({"kind": "updates", "updates": 0}, {}, None),
        ({"kind": "another"}, {}, None),
    ],
)
def test_the_share_of_the_budget_that_is_spent(tmp_path: Path, budget: dict, cost: dict, percent: float | None) -> None:
    with Spool(tmp_path / "runs" / "r", role="driver", attempt=1) as spool:
        spool.append(RunRecord("r", "opsd", "tiny", 0, {"budget": budget}, {}, 0.0))
        spool.append(StepRecord("r", 3, 0, {}, cost, 1.0))
    ingest(tmp_path)
    (run,) = snapshot_of(tmp_path).table("runs")["progress"]
    assert pd.isna(run) if percent is None else run == pytest.approx(percent)
