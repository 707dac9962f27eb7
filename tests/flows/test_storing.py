"""compact, prune, export and import as commands: what they refuse, what they say, what they leave alone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from evaluation.results.records import RunMark
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.store import Store
from flows.cli import main
from flows.pruning import KINDS, QUIET_SECONDS, size_of
from tests.bench.synthetic import synthetic_store
from training.checkpoints import release, segment_report, write_json

RUNS = 9
"""Of one study; number 5 failed and number 7 runs."""


def stillroom(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one study; never changed by a test."""
    folder = tmp_path_factory.mktemp("storing") / "store"
    synthetic_store(folder, runs=RUNS, updates=4, problems=4, evaluations=1, completion_bytes=40)
    return folder


@pytest.fixture
def store(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in a machine whose temporary folder is empty."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    shutil.copytree(source, tmp_path / "store", symlinks=True)
    return tmp_path / "store"


def write_checkpoints(run: Path, segments: int, *, released: bool = True, finished: bool = True) -> None:
    """Segments as a trainer leaves them, with checkpoints of 1000 bytes."""
    for number in range(1, segments + 1):
        folder = run / "checkpoints" / f"{number:05d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_bytes(b"x" * 1000)
        content = {
            "segment": number,
            "first_update": number,
            "last_update": number,
            "finished": finished and number == segments,
            "checkpoint": f"checkpoints/{number:05d}",
            "cost": {},
            "checksums": {},
        }
        write_json(run / "segments" / f"{number}.json", content)
        if released:
            (run / "segments" / f"{number}.released").touch()


def facts(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.glob("runs/*/spool/*"))}


def test_prune_lists_first_and_removes_only_when_told(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, failed = store / "runs" / "study-1-base", store / "runs" / "study-1-sft-0.0001-s1"
    assert (done / "finished.json").exists() and not (failed / "finished.json").exists()
    write_checkpoints(done, 3)
    write_checkpoints(failed, 3, finished=False)
    (done / "checkpoints-damaged-1").mkdir()
    (failed / "checkpoints-damaged-1").mkdir()
    (store / "prefect").mkdir()
    (store / "prefect" / "prefect.db").write_bytes(b"p" * 77)
    (store / "logs").mkdir()
    (store / "logs" / "ingest.log").write_bytes(b"l" * 33)
    (store / "logs" / "prefect.lock").touch()
    before = facts(store)
    assert stillroom("prune", "--store", store, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    sizes = {Path(item["path"]).relative_to(store).as_posix(): item["bytes"] for item in listed["items"]}
    snapshots = {name: size for name, size in sizes.items() if name.startswith("snapshots/")}
    assert {name: size for name, size in sizes.items() if name not in snapshots} == {
        "runs/study-1-base/checkpoints/00001": 1000,
        "runs/study-1-base/checkpoints/00002": 1000,
        "runs/study-1-base/checkpoints-damaged-1": 0,
        "prefect": 77,
        "logs/ingest.log": 33,
    }
    assert listed["removed"] is False and listed["bytes"] == sum(sizes.values())
    assert all((store / name).exists() for name in sizes)
    assert stillroom("prune", "--store", store) == 0 and "--yes" in capsys.readouterr().out
    assert stillroom("prune", "--store", store, "--yes") == 0
    assert "Removed" in capsys.readouterr().out
    assert not any((store / name).exists() for name in sizes) and not list(done.rglob(".*.gone"))
    assert facts(store) == before
    assert sorted(path.name for path in (failed / "checkpoints").iterdir()) == ["00001", "00002", "00003"]
    assert segment_report(done, 3) is not None and segment_report(done, 2) is not None  # done, as if released in time
    assert release(failed, 3) == [1]  # the trainer's own rule is as it was
    with open_snapshot(store) as con:
        assert con.execute("SELECT count(*) FROM latest_runs").fetchone() == (RUNS,)
    assert stillroom("prune", "--store", store, "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == []


def test_a_checkpoint_that_an_evaluation_still_needs_stays(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoints(store / "runs" / "study-1-base", 3, released=False)
    assert stillroom("prune", "--store", store, "--only", "checkpoints", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == []
    assert len(list((store / "runs" / "study-1-base" / "checkpoints").iterdir())) == 3


def test_what_is_in_use_stays(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = store / "runs" / "study-1-base"
    write_checkpoints(run, 2)
    for name in ("prefect", "logs"):
        (store / name).mkdir()
        (store / name / "x.db").write_bytes(b"x")
    with (run / "run.lock").open("w") as lock, (store / "logs" / "prefect.lock").open("w") as study:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(study, fcntl.LOCK_EX)
        assert stillroom("prune", "--store", store, "--yes", "--json", *only("checkpoints", "prefect", "logs")) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []
    assert (run / "checkpoints" / "00001").exists() and (store / "prefect" / "x.db").exists()


def only(*kinds: str) -> list[str]:
    return [word for kind in kinds for word in ("--only", kind)]


def test_texts_of_archived_runs_go_and_their_scores_stay(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archived, other = "study-1-base", "study-1-sft-1e-05-s0"
    with Spool(store / "runs" / archived, role="user", attempt=1) as spool:
        spool.append(RunMark(archived, "archive", "", True, None, 1.0))
    assert stillroom("prune", "--store", store, "--only", "samples", "--yes", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["path"] for item in found["items"]] == [str(store / "runs" / archived / "samples")]
    assert not (store / "runs" / archived / "samples").exists() and (store / "runs" / other / "samples").exists()
    with open_snapshot(store) as con:
        assert con.execute("SELECT n_answers FROM scores WHERE run_id = ?", [archived]).fetchone() == (8,)


def test_leftovers_go_when_they_are_old(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = time.time() - 2 * QUIET_SECONDS
    run = store / "runs" / "study-1-base"
    paths = [
        run / "samples" / ".answers.parquet.1-1.tmp",
        run / "compacted" / ".1-1.tmp",
        store / "imports" / "1-1" / "x",
        tmp_path / "tmp" / "still-abc" / "1" / "session_1" / "x",
        store / "results.rebuild-1.duckdb",
    ]
    kept = [tmp_path / "tmp" / "still-tests-1" / "x", tmp_path / "tmp" / "still-empty", run / "samples" / ".new.tmp"]
    for path in [*paths, *kept[:1], kept[2]]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    kept[1].mkdir()
    tops = [paths[0], paths[1], store / "imports" / "1-1", tmp_path / "tmp" / "still-abc", paths[4]]
    for path in [*tops, kept[0].parent, kept[1]]:
        os.utime(path, (old, old))
    assert stillroom("prune", "--store", store, "--yes", "--json", *only("leftovers", "snapshots")) == 0
    found = {item["path"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert {str(path) for path in tops} <= found and not any(path.exists() for path in tops)
    assert all(path.exists() for path in kept)
    assert (store / "results.ro.duckdb").exists()


def test_size_of_counts_links_for_themselves(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert size_of(tmp_path / "a") == 10 and size_of(tmp_path / "link") == len(str(tmp_path / "a"))


def test_compact_takes_done_runs_only(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stillroom("compact", "study-1-sft-0.0001-s1", "--store", store) == 2
    assert "is not done" in capsys.readouterr().err
    assert stillroom("compact", "nothing", "--store", store) == 2
    assert stillroom("compact", "--store", store, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(report["not_done"]) == ["study-1-grpo-1e-05-s0", "study-1-sft-0.0001-s1"]
    assert len(report["runs"]) == RUNS - 2 and all(run["spools"] == 3 for run in report["runs"])
    assert {path.parts[-3] for path in Store(store).spool_files()} == set(report["not_done"])
    assert stillroom("compact", "--store", store) == 0
    assert "0 spools of 0 runs" in capsys.readouterr().out


def test_export_and_import_give_the_same_table(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert stillroom("compare", "study-1", "--json", "--store", store) == 0
    expected = json.loads(capsys.readouterr().out)
    assert stillroom("export", "--plan", "study-1", "--to", tmp_path / "b.zip", "--store", store) == 0
    assert f"{RUNS} runs" in capsys.readouterr().out
    for new in (RUNS, 0):
        assert stillroom("import", tmp_path / "b.zip", "--store", other, "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (len(report["new_runs"]), report["plans"]) == (new, ["study-1"])
        assert stillroom("compare", "study-1", "--json", "--store", other) == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert stillroom("export", "study-1-sft-1e-05-s0", "--to", tmp_path / "one", "--store", store, "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 2  # and the untrained model
    environment = tmp_path / "one" / "environment"
    assert "duckdb==" in (environment / "requirements.txt").read_text()
    assert set(json.loads((environment / "provenance.json").read_text())) == {"study-1-base", "study-1-sft-1e-05-s0"}


def test_patches_of_the_code_travel(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evaluation.results.bundle_export import export_bundle

    (store / "code").mkdir()
    (store / "code" / "abc.patch").write_text("diff")
    patches = ["code/abc.patch", "code/gone.patch"]
    export_bundle(store, {"study-1-base": {}}, tmp_path / "b", version="0", patches=patches)
    assert stillroom("import", tmp_path / "b", "--store", tmp_path / "other") == 0
    assert (tmp_path / "other" / "code" / "abc.patch").read_text() == "diff"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["export", "--to", "x.zip"], "--plan"),
        (["export", "study-1-base", "--plan", "study-1", "--to", "x.zip"], "one of the two"),
        (["export", "--plan", "nothing", "--to", "x.zip"], "nothing"),
        (["export", "nothing", "--to", "x.zip"], "nothing"),
        (["import", "absent.zip"], "no bundle"),
        (["prune", "--only", "checkpoint"], "checkpoints"),
    ],
)
def test_refusals_are_one_line(
    store: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    assert stillroom(*words, "--store", store) == 2
    errors = capsys.readouterr().err
    assert why in errors and errors.count("\n") == 1
    assert not (store.parent / "x.zip").exists() and next(iter(KINDS)) == "checkpoints"


def test_a_run_that_runs_here_is_not_imported_over(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stillroom("export", "--plan", "study-1", "--to", tmp_path / "b", "--store", store) == 0
    with (store / "runs" / "study-1-base" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert stillroom("import", tmp_path / "b", "--store", store) == 2
    assert "runs here now" in capsys.readouterr().err
