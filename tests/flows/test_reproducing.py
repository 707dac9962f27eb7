"""What a run is made of is kept, checked before anything starts, and compared bit for bit."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.results.equality import compare_numbers
from evaluation.results.ingest import ingest
from evaluation.results.snapshot import open_snapshot
from flows import identity, reproducing
from flows.run_folder import StoredRun
from tests.evaluation.results.factory import Study, run_id, write_study
from tests.training.sessions import cache, small_run

STUDY = Study(seeds=(0,), problems=6)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small repository with one commit, taken for the one that Stillroom runs from."""
    root = tmp_path / "repository"
    (root / "training").mkdir(parents=True)
    (root / "flows").mkdir()
    (root / "training" / "a.py").write_text("A = 1\n")
    (root / "flows" / "rerun.py").write_text("")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    for module in (identity, reproducing):
        monkeypatch.setattr(module, "REPOSITORY", root)
    cached = (identity.working_changes, identity.code_hash, identity.provenance)
    for function in cached:
        function.cache_clear()
    yield root
    for function in cached:
        function.cache_clear()


def test_uncommitted_changes_and_new_files_are_kept_and_restore_the_tree(repository: Path, tmp_path: Path) -> None:
    (repository / "training" / "a.py").write_text("A = 2\n")
    (repository / "training" / "b.py").write_text("B = 1\n")
    (repository / "notes.txt").write_text("not code")
    identity.keep_changes(tmp_path / "store")
    recorded = identity._git()
    patch = tmp_path / "store" / recorded["git_diff_file"]
    assert recorded["git_dirty"] and recorded["git_diff_bytes"] == patch.stat().st_size
    assert hashlib.sha256(patch.read_bytes()).hexdigest() == recorded["git_diff_hash"]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(repository), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "apply", str(patch)], check=True)
    assert (clone / "training" / "a.py").read_text() == "A = 2\n"
    assert (clone / "training" / "b.py").read_text() == "B = 1\n"
    assert not (clone / "notes.txt").exists()


def test_a_clean_tree_has_nothing_to_keep(repository: Path, tmp_path: Path) -> None:
    identity.keep_changes(tmp_path / "store")
    recorded = identity._git()
    assert (recorded["git_dirty"], recorded["git_diff_hash"], recorded["git_diff_file"]) == (False, None, None)
    assert len(recorded["git_commit"]) == 40 and not (tmp_path / "store").exists()


def test_a_patch_that_is_too_large_is_hashed_and_not_kept(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MOST_PATCH_BYTES", 100)
    (repository / "training" / "a.py").write_text("A = 3\n" * 100)
    identity.keep_changes(tmp_path / "store")
    recorded = identity._git()
    assert recorded["git_diff_hash"] and recorded["git_diff_file"] is None and not (tmp_path / "store").exists()
    part = reproducing._code_part(tmp_path / "store", stored(), recorded)
    assert part.ok is False and "were not kept" in part.detail


def stored(code: str = "another") -> StoredRun:
    return StoredRun("r", small_run("sft"), {"code": code, "model": "", "data": ""}, cache(), None)


def test_what_cannot_be_restored_is_told_apart(repository: Path, tmp_path: Path) -> None:
    (repository / "training" / "a.py").write_text("A = 2\n")
    identity.keep_changes(tmp_path)
    recorded = identity._git()

    def part(**changes: object) -> reproducing.Part:
        return reproducing._code_part(tmp_path, stored(), {**recorded, **changes})

    assert part().ok and "uncommitted changes" in part().detail
    assert part(git_commit="0" * 40).ok is False and part(git_commit=None).ok is False
    (tmp_path / recorded["git_diff_file"]).write_bytes(b"something else")
    assert part().ok is False and "is not what was kept" in part().detail
    same = reproducing._code_part(tmp_path, stored(identity.code_hash()), {"git_commit": None})
    assert same.ok and "used as they are" in same.detail


def test_equal_stores_are_equal_and_one_bit_is_found(tmp_path: Path) -> None:
    name = run_id(STUDY, STUDY.cells[0], 0)
    for place in ("one", "same", "other"):
        write_study(tmp_path / place, STUDY, ingested=False)
    spools = [
        file for file in (tmp_path / "other/runs" / name / "spool").glob("*.jsonl") if '"loss"' in file.read_text()
    ]
    text = spools[0].read_text()
    loss = text.partition('"loss":')[2].partition(",")[0]
    digit = "1" if loss[-1] != "1" else "2"
    spools[0].write_text(text.replace(f'"loss":{loss}', f'"loss":{loss[:-1]}{digit}', 1))
    for place in ("one", "same", "other"):
        ingest(tmp_path / place)
    with open_snapshot(tmp_path / "one") as one, open_snapshot(tmp_path / "same") as same:
        found = compare_numbers(one, same, name)
    assert all(part.is_equal and part.rows for part in found) and len(found) == 5
    with open_snapshot(tmp_path / "one") as one, open_snapshot(tmp_path / "other") as other:
        found = compare_numbers(one, other, name)
    assert [(part.what, part.different) for part in found if not part.is_equal] == [("training metrics", 1)]
    assert "1 loss" in (found[0].first or "")


def test_missing_rows_are_differences(tmp_path: Path) -> None:
    for place, updates in (("one", 20), ("other", 10)):
        write_study(tmp_path / place, replace(STUDY, updates=updates))
    with open_snapshot(tmp_path / "one") as one, open_snapshot(tmp_path / "other") as other:
        found = {part.what: part for part in compare_numbers(one, other, run_id(STUDY, STUDY.cells[0], 0))}
    assert found["rollouts"].missing == 40 and found["scores"].missing == 1
