"""Each line once, each fact once, bad lines aside: whatever is in the spools."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import duckdb
import pytest

from evaluation.results import spool as spool_module
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.records import GradeRecord, RunEvent, RunMark, StepRecord
from evaluation.results.settle import KEYS, STORED
from evaluation.results.snapshot import NoSnapshotError, open_snapshot, publish
from evaluation.results.spool import Spool
from evaluation.results.store import Store, StoreBusyError, StoreDamagedError
from tests.dashboard.traced import trace, write_trace
from tests.evaluation.results.factory import (
    START,
    Cell,
    Study,
    base_run_id,
    run_id,
    write_base,
    write_run,
    write_study,
)


def rows(store: Path, sql: str) -> list[tuple]:
    with open_snapshot(store) as con:
        return con.execute(sql).fetchall()


def step(update: int, value: float = 0.5) -> StepRecord:
    return StepRecord("r", update, 0, {"loss": value}, {"rollout_tokens": 10.0 * update}, 1.0)


def good_line(seq: object = 0, **changes: object) -> bytes:
    line = {
        "v": 1,
        "writer": "w",
        "seq": seq,
        "attempt": 1,
        "kind": "step",
        "run_id": "r",
        "key": "1",
        "at": 1.0,
        "pid": 1,
        "role": "trainer",
        "data": {"update": 1, "segment": 0, "metrics": {"loss": 1.0}, "cost": {}, "at": 1.0},
    }
    return json.dumps({**line, **changes}).encode() + b"\n"


def spool_file(store: Path, name: str = "host-1-1.jsonl", run: str = "r") -> Path:
    path = store / "runs" / run / "spool" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_study_arrives_once_and_again_changes_nothing(tmp_path: Path) -> None:
    write_study(tmp_path, ingested=False)
    first = ingest(tmp_path)
    assert first.bad_lines == 0 and first.waiting_bytes == 0 and first.published and not first.rebuilt
    in_files = sum(path.read_bytes().count(b"\n") for path in Store(tmp_path).spool_files())
    assert first.lines == in_files and first.files == len(Store(tmp_path).spool_files())
    again = ingest(tmp_path)
    assert again.lines == 0 and not again.published
    assert rows(tmp_path, "SELECT sum(lines), sum(bad_lines) FROM ledger") == [(in_files, 0)]
    assert rows(tmp_path, "SELECT count(*) FROM unsettled") == [(0,)]


def test_a_torn_last_line_waits_for_the_rest(tmp_path: Path) -> None:
    path = spool_file(tmp_path)
    whole = good_line(1)
    path.write_bytes(good_line(0) + whole[:40])
    report = ingest(tmp_path)
    assert (report.lines, report.bad_lines, report.waiting_bytes) == (1, 0, 40)
    assert ingest(tmp_path).waiting_bytes == 40
    with path.open("ab") as file:
        file.write(whole[40:])
    report = ingest(tmp_path)
    assert (report.lines, report.bad_lines, report.waiting_bytes) == (1, 0, 0)
    assert rows(tmp_path, "SELECT seq FROM steps ORDER BY seq") == [(0,), (1,)]


BAD_LINES = {
    b"not json\n": "Invalid JSON",
    b'{"v": 1\n': "Invalid JSON",
    b"\x00\x00\x00\n": "Invalid JSON",
    b"\xff\xfe\n": "Invalid JSON",
    b"\n": "Invalid JSON",
    b"[" * 5000 + b"\n": "Invalid JSON",
    b"[]\n": "object",
    b"3\n": "object",
    good_line(kind="surprise"): "surprise",
    good_line(v=2): "v: ",
    good_line(seq="0"): "seq",
    good_line(seq=2**70): "seq",
    good_line(attempt=True): "attempt",
    good_line(attempt=0): "attempt",
    good_line(run_id=None): "run_id",
    good_line(at=1e30): "at",
    good_line(data=None): "data",
    good_line(data={}): "data.update",
    good_line(data={"update": 1.5, "segment": 0, "metrics": {}, "cost": {}, "at": 1}): "data.update",
    good_line(data={"update": 1, "segment": 0, "metrics": {"a": "x"}, "cost": {}, "at": 1}): "data.metrics.a",
    good_line(data={"update": 1, "segment": 0, "metrics": {}, "cost": {"flop": -1}, "at": 1}): "data.cost.flop",
    good_line(data={"update": 1, "segment": 0, "metrics": {}, "cost": {"teacher_tokens": 1e300}, "at": 1}): "data.cost",
    good_line().replace(b'"loss": 1.0', b'"loss": NaN'): "data.metrics.loss",
    good_line().replace(b'"loss": 1.0', b'"loss": 1e999'): "data.metrics.loss",
    good_line().replace(b'"run_id": "r"', b'"run_id": "\\ud83d"'): "Invalid JSON",
    good_line(kind="run_event", data={"sequence": 1, "status": "x", "at": 1.0, "details": {}}).replace(
        b'"details": {}', b'"details": {"a": NaN}'
    ): "data.details",
    good_line(kind="grade", data={"answer_key": "k", "verdict": "maybe"}): "data.",
}


def test_bad_lines_go_to_quarantine_and_stop_nothing(tmp_path: Path) -> None:
    path = spool_file(tmp_path)
    content, offsets = b"", []
    for seq, line in enumerate(BAD_LINES):
        content += good_line(seq)
        offsets.append((len(content), len(line) - 1))
        content += line
    path.write_bytes(content)
    report = ingest(tmp_path)
    assert (report.lines, report.bad_lines) == (len(BAD_LINES), len(BAD_LINES))
    found = rows(tmp_path, "SELECT start_byte, length, reason, file, excerpt FROM quarantine ORDER BY start_byte")
    assert [(start, length) for start, length, *_ in found] == offsets
    for (_, _, reason, file, excerpt), (line, why) in zip(found, BAD_LINES.items(), strict=True):
        assert why in reason and "\n" not in reason, (line, reason)
        assert file == "runs/r/spool/host-1-1.jsonl"
        assert excerpt.startswith(line[:20].decode(errors="replace").rstrip("\n"))
    assert rows(tmp_path, "SELECT count(*) FROM steps") == [(len(BAD_LINES),)]
    assert ingest(tmp_path).bad_lines == 0
    assert rebuild(tmp_path).bad_lines == len(BAD_LINES)


def run_line(spec: object, **changes: object) -> bytes:
    data = {"method": "m", "model": "m", "seed": 1, "spec": spec, "provenance": {}, "created_at": 1.0, **changes}
    return good_line(kind="run", key="run", data=data)


def test_extreme_values_that_are_facts_are_taken(tmp_path: Path) -> None:
    """Whatever passes the check must also pass into the database: one line that cannot would stop all others."""
    nested: dict = {}
    for _ in range(150):
        nested = {"a": nested}
    lines = [
        run_line({"a": 10**400}),
        run_line({"a": "\x00", "\x00": 1, "": 2}),
        run_line(nested),
        run_line({"a": 1e308, "b": -0.0, "c": 5e-324}),
        run_line({"a": "x" * 3_000_000}),
        run_line({}, method="\x00"),
        run_line({}, seed=2**63 - 1),
        run_line({}, seed=-(2**63)),
        run_line({}, created_at=-61e9),
        run_line({}, created_at=252e9),
        good_line(at=252e9, pid=-1, role="", run_id=""),
        good_line(data={"update": 1, "segment": 0, "metrics": {"": 1e308}, "cost": {"teacher_tokens": 9e18}, "at": 1}),
    ]
    spool_file(tmp_path).write_bytes(b"".join(lines))
    report = ingest(tmp_path)
    assert (report.lines, report.bad_lines) == (len(lines), 0)
    assert rows(tmp_path, "SELECT max(seed), min(seed), max(length(spec::VARCHAR)) > 3e6 FROM runs") == [
        (2**63 - 1, -(2**63), True)
    ]


def test_absurd_scores_stop_nothing(tmp_path: Path) -> None:
    study = Study(cells=(), problems=3, samples=1)
    write_base(tmp_path, study)
    with Spool(tmp_path / "runs" / "demo-base", role="grader", attempt=1) as spool:
        for problem, score in enumerate([1e300, -1e300, 0.5]):
            key = f"0/addition/test/p{problem}/0"
            spool.append(GradeRecord("demo-base", key, "judge", "1", "pass", score, None, None, None, None))
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT accuracy, score FROM scores") == [(1.0, pytest.approx(0.5 / 3))]


def test_a_spool_removed_meanwhile_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = spool_file(tmp_path)
    path.write_bytes(good_line())
    gone = spool_file(tmp_path, "host-2-2.jsonl")
    monkeypatch.setattr(Store, "spool_files", lambda self: [path, gone])
    report = ingest(tmp_path)
    assert (report.files, report.lines) == (1, 1)


def test_unknown_fields_of_a_newer_writer_are_no_fault(tmp_path: Path) -> None:
    line = json.loads(good_line(later="x"))
    line["data"]["new_field"] = {"a": [1, float("inf")]}
    line["data"].pop("cost")
    line["data"]["cost"] = {"rollout_tokens": 3, "not_yet_known": 4}
    spool_file(tmp_path).write_bytes(json.dumps(line).replace("Infinity", "null").encode() + b"\n")
    assert ingest(tmp_path).lines == 1
    assert rows(tmp_path, "SELECT rollout_tokens, teacher_tokens FROM step_costs") == [(3, None)]


def test_non_finite_metrics_are_null_and_counted(tmp_path: Path) -> None:
    with Spool(tmp_path / "runs" / "r", role="trainer", attempt=1) as spool:
        spool.append(StepRecord("r", 1, 0, {"loss": float("nan"), "norm": 2.0}, {}, 1.0))
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT name, value FROM latest_steps ORDER BY name") == [("loss", None), ("norm", 2.0)]
    assert rows(tmp_path, "SELECT non_finite_metrics FROM step_costs") == [(1,)]


def test_a_redone_update_counts_once_by_the_highest_attempt(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r"
    with Spool(run, role="trainer", attempt=2) as second:  # opened first: order in time must not matter
        with Spool(run, role="trainer", attempt=1) as first:
            second.append(step(2, 0.25))
            first.append(step(1, 0.9))
            first.append(step(2, 0.8))
            first.append(StepRecord("r", 3, 0, {"loss": 0.7, "only_before": 1.0}, {"rollout_tokens": 999.0}, 1.0))
        ingest(tmp_path)
        second.append(step(3, 0.2))
    expected = [(1, "loss", 0.9), (2, "loss", 0.25), (3, "loss", 0.2)]
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT update, name, value FROM latest_steps ORDER BY update") == expected
    costs = "SELECT update, rollout_tokens FROM latest_step_costs ORDER BY update"
    assert rows(tmp_path, costs) == [(1, 10), (2, 20), (3, 30)]
    assert rows(tmp_path, "SELECT count(*) FROM steps") == [(6,)]  # every line is kept
    rebuild(tmp_path)
    assert rows(tmp_path, "SELECT update, name, value FROM latest_steps ORDER BY update") == expected


def test_the_same_attempt_twice_counts_once_by_the_later_line(tmp_path: Path) -> None:
    with Spool(tmp_path / "runs" / "r", role="trainer", attempt=1) as spool:
        spool.append(step(1, 0.9))
        spool.append(step(1, 0.1))
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT value FROM latest_steps") == [(0.1,)]


def test_an_evaluation_redone_after_a_crash_counts_once(tmp_path: Path) -> None:
    study = Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,))
    write_study(tmp_path, study)
    before = rows(tmp_path, "SELECT update, accuracy, n_answers, n_problems FROM scores ORDER BY ALL")
    write_run(tmp_path, study, study.cells[0], 0, attempt=2, updates=10)
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT update, accuracy, n_answers, n_problems FROM scores ORDER BY ALL") == before
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT answer_key) FROM answers WHERE update = 10") == [(96, 48)]
    assert rows(tmp_path, "SELECT count(*) FROM latest_rollouts") == [(80,)]


def test_a_later_grade_supersedes_the_judgement_and_keeps_the_old_one(tmp_path: Path) -> None:
    study = Study(cells=(), problems=4, samples=1, base_accuracy=0.0)
    write_base(tmp_path, study)
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT accuracy FROM scores") == [(0.0,)]
    with Spool(tmp_path / "runs" / "demo-base", role="grader", attempt=1) as spool:
        for problem in range(2):
            key = f"0/addition/test/p{problem}/0"
            spool.append(GradeRecord("demo-base", key, "exact", "2", "pass", 1.0, "x", True, "pass", None))
    ingest(tmp_path)
    assert rows(tmp_path, "SELECT accuracy, score FROM scores") == [(0.5, 0.5)]
    judged = "SELECT version, count(*) FROM {} GROUP BY version ORDER BY version"
    assert rows(tmp_path, judged.format("graded_answers")) == [("1", 2), ("2", 2)]
    assert rows(tmp_path, judged.format("latest_grades")) == [("1", 4), ("2", 2)]


@pytest.mark.parametrize("change", ["shrunk", "replaced", "replaced_by_longer"])
def test_a_spool_that_is_no_longer_the_same_is_read_again(tmp_path: Path, change: str) -> None:
    path = spool_file(tmp_path)
    path.write_bytes(good_line(0, key="1") + good_line(1, key="1"))
    other = spool_file(tmp_path, "host-2-2.jsonl")
    other.write_bytes(good_line(0, run_id="other"))
    ingest(tmp_path)
    new = {
        "shrunk": good_line(0),
        "replaced": good_line(7) + good_line(8),
        "replaced_by_longer": good_line(7) + good_line(8) + good_line(9),
    }[change]
    path.write_bytes(new)
    report = ingest(tmp_path)
    assert report.replaced == ("runs/r/spool/host-1-1.jsonl",)
    expected = [(json.loads(line)["seq"],) for line in new.splitlines()]
    assert rows(tmp_path, "SELECT seq FROM steps WHERE writer = 'host-1-1' ORDER BY seq") == expected
    assert rows(tmp_path, "SELECT count(*) FROM latest_steps WHERE run_id = 'r'") == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM steps WHERE run_id = 'other'") == [(1,)]
    assert ingest(tmp_path).replaced == ()


def test_a_copied_store_is_the_same_store(tmp_path: Path) -> None:
    write_study(tmp_path / "a", Study(cells=(), problems=3))
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    for path in Store(tmp_path / "b").spool_files():
        os.utime(path, ns=(1, 1))
    report = ingest(tmp_path / "b")
    assert (report.lines, report.replaced, report.bad_lines) == (0, (), 0)
    assert rows(tmp_path / "b", "FROM scores") == rows(tmp_path / "a", "FROM scores")


def test_rebuild_equals_what_came_bit_by_bit(tmp_path: Path) -> None:
    """Not one row of one table differs, but for the times of ingesting."""
    study = Study(samples=3, clusters=5, unscored_rate=0.1, seeds=(0, 1))
    write_base(tmp_path, study)
    for cell in study.cells[:2]:
        for seed in study.seeds:
            write_run(tmp_path, study, cell, seed, updates=10)
            ingest(tmp_path)
            write_run(tmp_path, study, cell, seed, attempt=2)
    with Spool(tmp_path / "runs" / base_run_id(study), role="user", attempt=1) as spool:
        spool.append(RunMark(base_run_id(study), "tag", "kept", True, "somebody", START))
    write_trace(tmp_path, base_run_id(study), 0, [trace("p0", 0)])
    spool_file(tmp_path).write_bytes(b"bad\n")
    ingest(tmp_path)
    tables = [*KEYS, "steps", "quarantine", *STORED]
    hidden = {"quarantine": "EXCLUDE (found_at)"}

    def content() -> dict[str, list[tuple]]:
        return {t: sorted(rows(tmp_path, f"SELECT * {hidden.get(t, '')} FROM {t}"), key=repr) for t in tables}

    before = content()
    assert all(before.values())
    report = rebuild(tmp_path)
    assert report.rebuilt and report.published
    after = content()
    for table in tables:
        assert after[table] == before[table], table
    assert not list(tmp_path.glob("results.rebuild-*"))


@pytest.mark.parametrize("view", list(STORED))
def test_stored_scores_are_the_computed_ones(tmp_path: Path, view: str) -> None:
    study = write_study(tmp_path, Study(samples=3, clusters=4, unscored_rate=0.2))
    write_run(tmp_path, study, study.cells[1], 1, attempt=2, updates=10)
    ingest(tmp_path)
    both = f"(FROM {view} EXCEPT FROM {view}_computed) UNION ALL (FROM {view}_computed EXCEPT FROM {view})"
    assert rows(tmp_path, both) == []
    columns = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{}' ORDER BY column_index"
    assert rows(tmp_path, columns.format(f"{view}_stored")) == rows(tmp_path, columns.format(f"{view}_computed"))


def test_tables_of_another_version_are_made_again(tmp_path: Path) -> None:
    study = write_study(tmp_path, Study(cells=(), problems=3))
    with duckdb.connect(str(tmp_path / "results.duckdb")) as con:
        con.execute("UPDATE schema_version SET schema_sha256 = 'older'")
        con.execute("ALTER TABLE runs DROP COLUMN seed")
    report = ingest(tmp_path)
    assert report.rebuilt and report.published and report.lines > 0
    assert rows(tmp_path, "SELECT seed FROM runs") == [(0,)] and study.plan == "demo"


def test_views_of_another_version_are_defined_again(tmp_path: Path) -> None:
    write_study(tmp_path, Study(cells=(), problems=3))
    with duckdb.connect(str(tmp_path / "results.duckdb")) as con:
        con.execute("UPDATE schema_version SET views_sha256 = 'older'")
        con.execute("DROP VIEW curves")
        con.execute("CREATE VIEW retired AS SELECT 1 AS one")
        con.execute("UPDATE problem_scores_stored SET n_passed = 99")
    report = ingest(tmp_path)
    assert not report.rebuilt and report.published and report.lines == 0
    assert rows(tmp_path, "SELECT count(*) FROM curves") == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM duckdb_views() WHERE view_name = 'retired'") == [(0,)]
    assert rows(tmp_path, "SELECT max(n_passed) FROM problem_scores")[0][0] <= 3


def test_only_one_ingests_at_a_time(tmp_path: Path) -> None:
    write_study(tmp_path, Study(cells=(), problems=2), ingested=False)
    with Store(tmp_path).ingest_lock(), pytest.raises(StoreBusyError, match="another process is ingesting"):
        ingest(tmp_path, wait=0.1)
    assert ingest(tmp_path, wait=0).lines > 0


def test_a_damaged_database_names_the_way_back(tmp_path: Path) -> None:
    write_study(tmp_path, Study(cells=(), problems=2))
    expected = rows(tmp_path, "FROM scores")
    (tmp_path / "results.duckdb").write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreDamagedError, match="stillroom ingest --rebuild"):
        ingest(tmp_path)
    rebuild(tmp_path)
    assert rows(tmp_path, "FROM scores") == expected


def test_an_empty_store_publishes_empty_views(tmp_path: Path) -> None:
    with pytest.raises(NoSnapshotError, match="stillroom demo"):
        publish(tmp_path)
    report = ingest(tmp_path)
    assert report.files == 0 and report.published
    assert rows(tmp_path, "SELECT count(*) FROM run_overview") == [(0,)]


def test_unsettled_facts_of_a_dead_ingestor_are_settled_before_publishing(tmp_path: Path) -> None:
    """Facts are in, but the process died before it marked what is superseded."""
    study = Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,))
    write_study(tmp_path, study)
    name = run_id(study, study.cells[0], 0)
    with duckdb.connect(str(tmp_path / "results.duckdb")) as con:
        con.execute("DELETE FROM scores_stored")
        con.execute("INSERT INTO unsettled VALUES (?, 'answers')", [name])
        con.execute("UPDATE schema_version SET revision = revision + 1")
    assert publish(tmp_path)
    assert rows(tmp_path, f"SELECT count(*) FROM scores WHERE run_id = '{name}'") == [(2,)]


def test_the_ledger_names_the_processes(tmp_path: Path) -> None:
    write_study(tmp_path, Study(cells=(Cell("OPSD", "opsd", 0.8),), seeds=(0,)))
    found = rows(tmp_path, "SELECT role, pid, kinds FROM processes WHERE run_id = 'demo-opsd-0' ORDER BY role")
    assert [role for role, _, _ in found] == ["driver", "evaluator", "trainer"]
    assert {pid for _, pid, _ in found} == {os.getpid()}
    assert found[2][2] == ["step", "rollout"]
    assert rows(tmp_path, "SELECT processes FROM run_overview WHERE run_id = 'demo-opsd-0'") == [(1,)]


@pytest.mark.parametrize("clock", [20.0, -1000.0], ids=["clock goes on", "clock is behind"])
def test_events_keep_their_order_across_attempts(tmp_path: Path, clock: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run resumed on a host whose clock is behind is what its last event says, whatever the times."""
    run = tmp_path / "runs" / "r"
    monkeypatch.setattr(spool_module.time, "time", lambda: 10.0)
    with Spool(run, role="driver", attempt=1) as spool:
        for sequence, status in enumerate(["queued", "running", "failed"]):
            spool.append(RunEvent("r", sequence, status, 10.0 + sequence, "boom" if status == "failed" else None))
    monkeypatch.setattr(spool_module.time, "time", lambda: clock)
    with Spool(run, role="driver", attempt=2) as spool:
        spool.append(RunEvent("r", 3, "running", clock))
        ingest(tmp_path)
        assert rows(tmp_path, "SELECT status, error, attempts FROM run_status") == [("running", "", 2)]
        spool.append(RunEvent("r", 4, "done", clock + 1))
    ingest(tmp_path)
    status = "SELECT status, error, attempts, epoch(status_at) FROM run_status"
    assert rows(tmp_path, status) == [("done", "", 2, clock + 1)]
    with Spool(run, role="driver", attempt=1) as spool:  # a plan recorded later queues what is done already
        spool.append(RunEvent("r", 0, "queued", 99.0))
    ingest(tmp_path)
    assert rows(tmp_path, status) == [("done", "", 2, clock + 1)]
