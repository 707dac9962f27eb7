"""A bundle gives the same numbers elsewhere, once; a damaged, hostile or contradicting one changes nothing."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.results.bundle import BundleError, open_bundle
from evaluation.results.bundle_export import export_bundle
from evaluation.results.bundle_import import import_bundle
from evaluation.results.compaction import compact
from evaluation.results.compare import compare
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.records import RunMark, StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool, read_samples
from evaluation.results.store import Store
from tests.bench.synthetic import synthetic_store
from tests.evaluation.results.test_compaction import content


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one study; never changed by a test."""
    store = tmp_path_factory.mktemp("bundles") / "store"
    synthetic_store(store, runs=8, updates=6, problems=6, evaluations=2)
    return store


@pytest.fixture(scope="module")
def bundle(source: Path) -> Path:
    """All of it as a folder."""
    target = source.parent / "bundle"
    export_all(source, target)
    return target


def export_all(store: Path, target: Path, **more: Any) -> None:
    runs = {path.name: {"seed": 0} for path in sorted((store / "runs").iterdir())}
    environment = {"requirements.txt": "numpy==2\n"}
    export_bundle(store, runs, target, version="0", plans=["study-1"], environment=environment, **more)


def comparison(store: Path) -> str:
    with open_snapshot(store) as con:
        return json.dumps(compare(con, plan="study-1").to_dict(), sort_keys=True)


@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_the_same_numbers_on_another_machine(source: Path, tmp_path: Path, suffix: str) -> None:
    store = tmp_path / "copy"
    shutil.copytree(source, store, symlinks=True)
    compact(store, "study-1-base")  # facts travel from wherever they lie
    export_all(store, tmp_path / f"bundle{suffix}")
    shutil.rmtree(store)
    other = tmp_path / "other"
    report = import_bundle(other, tmp_path / f"bundle{suffix}")
    assert len(report.new_runs) == len(report.runs) == 8 and report.files > 16
    assert ingest(other).bad_lines == 0
    assert comparison(other) == comparison(source)
    hidden = ("compacted",)
    assert content(other, but=hidden) == content(source, but=hidden)
    with open_snapshot(other) as con:
        sql = "SELECT run_id, sample_file, sample_row FROM graded_answers ORDER BY ALL LIMIT 1"
        run, file, row = con.execute(sql).fetchone() or ("", "", 0)
    assert "Problem 0" in read_samples(other / "runs" / run, file, [row]).to_pylist()[0]["prompt"]
    assert (other / "runs" / "study-1-base" / "finished.json").exists()
    assert not list((other / "imports").iterdir())
    again = import_bundle(other, tmp_path / f"bundle{suffix}")
    assert (again.files, again.bytes, again.new_runs) == (0, 0, ())
    after = ingest(other)
    assert (after.lines, after.published) == (0, False)
    rebuild(other)
    assert comparison(other) == comparison(source)


def test_a_bundle_says_what_it_is(source: Path, bundle: Path) -> None:
    with open_bundle(bundle) as (_, manifest):
        files = manifest.files
        assert manifest.plans == ("study-1",) and len(manifest.runs) == 8
    on_disk = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert on_disk == {*files, "manifest.json"}
    assert all(hashlib.sha256((bundle / name).read_bytes()).hexdigest() == file.sha256 for name, file in files.items())
    text = (bundle / "README.md").read_text()
    assert "stillroom import" in text and all(run in text for run in manifest.runs)
    assert (bundle / "environment" / "requirements.txt").read_text() == "numpy==2\n"
    with pytest.raises(BundleError, match="exists"):
        export_all(source, bundle)


def test_without_texts(source: Path, tmp_path: Path) -> None:
    export_all(source, tmp_path / "small", samples=False)
    assert not list((tmp_path / "small").glob("runs/*/samples"))
    import_bundle(tmp_path / "store", tmp_path / "small")
    ingest(tmp_path / "store")
    assert comparison(tmp_path / "store") == comparison(source)


def test_checkpoints_locks_and_links_stay_at_home(source: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(source / "runs" / "study-1-base", store / "runs" / "study-1-base")
    run = store / "runs" / "study-1-base"
    for name in ("checkpoints/00001/student.safetensors", "segments-damaged-1/1.json", ".x.tmp", "run.lock"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    (run / "samples" / "secret.parquet").symlink_to("/etc/hostname")
    export_all(store, tmp_path / "bundle")
    names = {path.relative_to(tmp_path / "bundle").as_posix() for path in (tmp_path / "bundle").rglob("*")}
    assert not [n for n in names if "checkpoint" in n or "damaged" in n or "lock" in n or "secret" in n or ".x" in n]


def test_what_came_later_is_added_and_what_is_here_stays(source: Path, bundle: Path, tmp_path: Path) -> None:
    """The first import, then facts on both sides, then a second bundle of the same runs."""
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(source, there, symlinks=True)
    import_bundle(here, bundle)
    for store, tag in ((here, "mine"), (there, "theirs")):
        with Spool(store / "runs" / "study-1-base", role="marker", attempt=1) as spool:
            spool.append(RunMark("study-1-base", "tag", tag, True, None, 1.0))
        ingest(store)
    export_all(there, tmp_path / "second")
    assert import_bundle(here, tmp_path / "second").files == 1
    ingest(here)
    with open_snapshot(here) as con:
        tags = con.execute("SELECT value FROM marks WHERE mark = 'tag' ORDER BY value").fetchall()
        assert tags == [("mine",), ("theirs",)]
        assert con.execute("SELECT count(*), count(DISTINCT (writer, seq)) FROM answers").fetchall()[0][0] > 0
        doubled = "SELECT writer, seq, count(*) FROM answers GROUP BY ALL HAVING count(*) > 1"
        assert con.execute(doubled).fetchall() == []
    assert import_bundle(here, bundle).files == 0  # the older bundle has nothing to add
    assert compact(here, "study-1-base").spools == 1
    assert ingest(here).lines == 0 and len(list((here / "runs" / "study-1-base" / "compacted").iterdir())) == 1


def test_a_running_run_travels_as_far_as_it_is_and_goes_on(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    with Spool(store / "runs" / "r", role="trainer", attempt=1) as spool:
        spool.append(StepRecord("r", 1, 0, {"loss": 1.0}, {}, 1.0))
        export_bundle(store, {"r": {}}, tmp_path / "one", version="0")
        spool.append(StepRecord("r", 2, 0, {"loss": 1.0}, {}, 1.0))
        with spool.path.open("ab") as file:
            file.write(b'{"torn')
    export_bundle(store, {"r": {}}, tmp_path / "two.zip", version="0")
    for name, lines in (("one", 1), ("two.zip", 1), ("one", 0)):
        import_bundle(other, tmp_path / name)
        assert ingest(other).lines == lines
    rebuild(other)
    with open_snapshot(other) as con:
        assert con.execute("SELECT update FROM steps ORDER BY ALL").fetchall() == [(1,), (2,)]


def snapshot_of(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def relist(bundle: Path, changes: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    changes(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def correct(bundle: Path, name: str) -> None:
    """List the file as it is now: a hostile bundle has right checksums."""
    text = (bundle / name).read_bytes()
    relist(bundle, lambda m: m["files"].update({name: [len(text), hashlib.sha256(text).hexdigest()]}))


def facts_name(bundle: Path, run: str) -> str:
    return next((bundle / "runs" / run / "compacted").glob("*")).relative_to(bundle).as_posix()


def flip(bundle: Path) -> str:
    name = facts_name(bundle, "study-1-sft-1e-05-s0")
    text = bytearray((bundle / name).read_bytes())
    text[len(text) // 2] ^= 1
    (bundle / name).write_bytes(text)
    return name


def cut(bundle: Path) -> str:
    name = next(bundle.glob("runs/*/samples/*")).relative_to(bundle).as_posix()
    (bundle / name).write_bytes((bundle / name).read_bytes()[:-1])
    return name


def lose(bundle: Path) -> str:
    (bundle / "runs" / "study-1-base" / "spec.json").unlink()
    return "spec.json"


def lie(bundle: Path) -> str:
    """Right checksums, but the facts are another run's."""
    name = facts_name(bundle, "study-1-base")
    shutil.copy(bundle / facts_name(bundle, "study-1-sft-1e-05-s0"), bundle / name)
    correct(bundle, name)
    return name


def garbage(bundle: Path) -> str:
    name = facts_name(bundle, "study-1-base")
    (bundle / name).write_bytes(b"PAR1 no Parquet")
    correct(bundle, name)
    return name


def link(bundle: Path) -> str:
    file = bundle / "runs" / "study-1-base" / "spec.json"
    text = file.read_bytes()
    outside = bundle.parent / "outside.json"
    outside.write_bytes(text)
    file.unlink()
    file.symlink_to(outside)
    return "link"


def newer(bundle: Path) -> str:
    relist(bundle, lambda m: m.update(format=2))
    return "format 2"


def nonsense(bundle: Path) -> str:
    (bundle / "manifest.json").write_text("[1]")
    return "manifest.json"


@pytest.mark.parametrize("harm", [flip, cut, lose, lie, garbage, link, newer, nonsense])
def test_a_harmed_bundle_is_refused_by_name_and_changes_nothing(
    bundle: Path, tmp_path: Path, harm: Callable[[Path], str]
) -> None:
    shutil.copytree(bundle, tmp_path / "bad")
    named = harm(tmp_path / "bad")
    store = tmp_path / "store"
    store.mkdir()
    with pytest.raises(BundleError) as refusal:
        import_bundle(store, tmp_path / "bad")
    assert named in str(refusal.value)
    assert not list(store.glob("runs/*")) and not list(store.glob("imports/*"))


UNSAFE = [
    "../evil.json",
    "runs/../../evil.json",
    "/tmp/evil.json",
    "runs/r/../../../evil",
    "runs/r/samples/../../../../evil",
    "results.duckdb",
    "runs/r/checkpoints/1/state.json",
    "runs/r/spool/host-1-1.jsonl",
    "runs/r/run.lock",
    "runs/r",
    "plans\\evil.json",
    "runs/r//evil.json",
    "runs/./r/x.json",
    "runs/r/samples/.hidden",
    "",
    "runs/r/samples/a\u0000b",
]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_paths_that_lead_elsewhere_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    text = b"{}"
    files = {name: [len(text), hashlib.sha256(text).hexdigest()]}
    manifest = json.dumps({"format": 1, "stillroom": "0", "created_at": "", "plans": [], "runs": {}, "files": files})
    bundle = tmp_path / "inner" / ("b.zip" if kind == "zip" else "b")
    bundle.parent.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(bundle, "w") as archive:
            archive.writestr("manifest.json", manifest)
            archive.writestr(name or "x", text)
    else:
        bundle.mkdir()
        (bundle / "manifest.json").write_text(manifest)
    before = snapshot_of(tmp_path)
    with pytest.raises(BundleError, match="no place in a bundle"):
        import_bundle(tmp_path / "inner" / "store", bundle)
    assert snapshot_of(tmp_path) == before and not Path("/tmp/evil.json").exists()


def test_a_damaged_zip_and_no_bundle_are_refused(source: Path, tmp_path: Path) -> None:
    export_all(source, tmp_path / "good.zip")
    text = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(text[: len(text) // 2])
    (tmp_path / "flipped.zip").write_bytes(text[:5000] + bytes([text[5000] ^ 255]) + text[5001:])
    for name, why in (
        ("cut.zip", "cut short"),
        ("flipped.zip", "flipped.zip"),
        ("absent", "no bundle"),
        (".", "manif"),
    ):
        with pytest.raises(BundleError, match=why):
            import_bundle(tmp_path / "store", tmp_path / name)
    assert not (tmp_path / "store" / "runs").exists()


def test_another_content_under_the_same_name_is_refused(bundle: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    import_bundle(store, bundle)
    ingest(store)
    file = next(store.glob("runs/*/samples/*.parquet"))
    good = file.read_bytes()
    file.write_bytes(b"other" + good)
    with pytest.raises(BundleError, match=file.name):
        import_bundle(store, bundle)
    file.write_bytes(good)
    facts = next((store / "runs" / "study-1-base" / "compacted").glob("*.parquet"))
    with Spool(store / "runs" / "study-1-base", role="driver", attempt=1) as spool:
        spool.append(StepRecord("study-1-base", 1, 0, {}, {}, 1.0))
    with open_bundle(bundle) as (_, manifest):
        names = [name for name in manifest.files if name.endswith(facts.name)]
    assert len(names) == 1
    shutil.copytree(bundle, tmp_path / "clash")
    facts.unlink()
    from evaluation.results.compacted import CompactedFile

    kept = CompactedFile.open(tmp_path / "clash" / names[0]).spools[0].name
    spool.path.rename(spool.path.with_name(kept))
    with pytest.raises(BundleError, match=kept):
        import_bundle(store, tmp_path / "clash")


def _import_until(store: Path, bundle: Path, call: int) -> None:
    """Import and die at the ``call``-th call that moves a file into place."""
    left, real = [call], Path.replace

    def doomed(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, target)

    Path.replace = doomed  # type: ignore[method-assign]
    import_bundle(store, bundle)
    os._exit(0)


def test_an_import_that_was_killed_is_completed_by_the_next(source: Path, bundle: Path, tmp_path: Path) -> None:
    for call in (4, 15):
        store = tmp_path / str(call)
        process = multiprocessing.get_context("fork").Process(target=_import_until, args=(store, bundle, call))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        ingest(store, publish=False)  # an ingestor that comes in between sees whole runs only
        report = import_bundle(store, bundle)
        assert report.files > 0
        ingest(store)
        assert comparison(store) == comparison(source), call
        assert not list((store / "imports").iterdir()) and import_bundle(store, bundle).files == 0


def test_a_run_that_is_not_there_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="absent"):
        export_bundle(source, {"absent": {}}, tmp_path / "b", version="0")
    assert not list(tmp_path.iterdir()) and len(Store(source).spool_files()) > 0
