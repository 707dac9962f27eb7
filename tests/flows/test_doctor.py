"""The doctor's findings on machines and stores that are made to be well or ill."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

import evaluation.grading.sandbox
from evaluation.grading.sandbox import INSTALL, Limits, Outcome, SandboxUnavailableError, find_sandbox
from evaluation.results.ingest import ingest
from evaluation.results.snapshot import open_snapshot
from evaluation.results.store import Store
from flows.doctor import Check, diagnose, machine, results, services
from tests.flows.study import wait_until

BAD_LINE = "this is no record\n"


def test_a_failing_check_must_name_its_fix() -> None:
    with pytest.raises(ValueError, match="must say what to do"):
        Check("disk", False, "full")


def test_quick_diagnosis_of_this_machine_passes_and_changes_nothing(tmp_path: Path) -> None:
    checks = diagnose(tmp_path / "store", deep=False)
    assert [check for check in checks if check.ok is False] == []
    assert all(check.fix for check in checks if check.ok is None)
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert not {"Ray", "Prefect", "sandbox"} & set(names)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_deep_diagnosis_starts_and_stops_ray_and_prefect(tmp_path: Path) -> None:
    found = {check.name: check for check in diagnose(tmp_path / "store", deep=True)}
    assert found["Ray"].ok is True, found["Ray"]
    assert "ran a task in another process" in found["Ray"].detail
    assert found["Prefect"].ok is True, found["Prefect"]
    assert f"server {importlib.metadata.version('prefect')} started" in found["Prefect"].detail
    left = [process.name() for process in psutil.Process().children(recursive=True) if process.status() != "zombie"]
    assert not [name for name in left if "raylet" in name or "gcs_server" in name]


# --- the machine ------------------------------------------------------------------------------------------------


def test_packages_finds_what_is_missing_or_outside_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "duckdb":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0" if name == "ray" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    check = machine.packages()
    assert check.ok is False
    assert "duckdb is missing" in check.detail
    assert "ray 1.0 is outside <2.61,>=2.60" in check.detail
    assert check.fix == machine.REBUILD


def test_packages_warns_of_versions_nobody_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9.9" if name == "urllib3" else real(name))
    check = machine.packages()
    assert check.ok is None
    assert f"urllib3 9.9.9 (pinned {machine.pinned_versions()['urllib3']})" in check.detail
    assert "torch" not in check.detail, "a local part such as +cpu is no difference"


def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100 * 2**30, 0, 2 * 2**30))
    assert machine.disk(tmp_path / "store").ok is True
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100 * 2**30, 0, 2 * 2**30 - 1))
    check = machine.disk(tmp_path / "not" / "there" / "yet")
    assert check.ok is False
    assert "STILLROOM_STORE" in check.fix


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    free = namedtuple("free", "available total")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free(1 * 2**30, 8 * 2**30))
    check = machine.memory()
    assert check.ok is None
    assert check.detail.startswith("1.0 GiB free of")


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = machine.folder("cache folder", tmp_path / "file" / "cache", "STILLROOM_CACHE")
    assert check == Check(
        "cache folder",
        False,
        f"{tmp_path / 'file'} is not a folder",
        "set STILLROOM_CACHE to a folder you may write in",
    )


def test_a_folder_that_refuses_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(dir: Path) -> None:
        raise OSError(30, "Read-only file system", str(dir))

    monkeypatch.setattr(machine.tempfile, "TemporaryFile", refuse)
    check = machine.folder("cache folder", tmp_path / "cache", "STILLROOM_CACHE")
    assert (check.ok, check.detail) == (
        False,
        f"{tmp_path / 'cache'}: cannot write in {tmp_path} (Read-only file system)",
    )


def test_a_gpu_that_torch_does_not_use_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(machine, "nvidia_gpus", lambda: ["NVIDIA X"])
    check = machine.torch_build()
    assert check.ok is None
    assert "does not use the GPU of this machine: NVIDIA X" in check.detail
    assert check.fix == "STILLROOM_TORCH=cuda make setup"


def test_benchmark_files(tmp_path: Path) -> None:
    assert machine.benchmark_files(None).ok is None
    assert machine.benchmark_files(tmp_path / "absent").ok is False
    partial = machine.benchmark_files(tmp_path)
    assert partial.ok is None
    assert "gsm8k (gsm8k_train.jsonl)" in partial.detail
    from evaluation.benchmarks import BENCHMARKS

    for benchmark in BENCHMARKS.values():
        for name in benchmark.files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    assert machine.benchmark_files(tmp_path).ok is True


# --- a store ----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A published store with one run of which only a line is known, and that line is bad."""
    spool = tmp_path / "store" / "runs" / "r1" / "spool"
    spool.mkdir(parents=True)
    (spool / "host-1-1.jsonl").write_text(BAD_LINE)
    return tmp_path / "store"


def test_no_store_is_well(tmp_path: Path) -> None:
    checks = [check(tmp_path / "none") for check in (results.database, results.quarantine, results.runs)]
    assert [check.ok for check in checks] == [True, True, True]


def test_results_that_were_never_published(store: Path) -> None:
    check = results.database(store)
    assert (check.ok, check.fix) == (None, "stillroom ingest")


def test_published_results_and_refused_lines(store: Path) -> None:
    ingest(store, wait=60)
    check = results.database(store)
    assert check.ok is True
    assert "free for the next ingest" in check.detail
    refused = results.quarantine(store)
    assert refused.ok is None
    assert refused.detail == "1 lines of the spools were not understood"
    # The suggested command's statement runs.
    sql = refused.fix.partition('"')[2].rstrip('"')
    with open_snapshot(store) as con:
        assert len(con.execute(sql).fetchall()) == 1


def test_an_ingest_that_is_running_is_no_fault(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(store, wait=60)
    monkeypatch.setattr(results, "LOCK_WAIT_SECONDS", 0.05)
    with Store(store).ingest_lock(0):
        check = results.database(store)
    assert check.ok is True
    assert "an ingest is running" in check.detail


def test_damaged_results(store: Path) -> None:
    ingest(store, wait=60)
    snapshot = Store(store).snapshot.resolve()
    snapshot.write_bytes(b"no database" * 1000)
    check = results.database(store)
    assert (check.ok, check.fix) == (False, "stillroom ingest --rebuild")
    assert results.quarantine(store).ok is True


def test_a_run_that_stopped_half_way(store: Path) -> None:
    (store / "runs" / "r1" / "spec.json").write_text("{}")
    attempts = store / "runs" / "r1" / "attempts"
    attempts.mkdir()
    (attempts / "1.json").write_text(json.dumps({"host": "h", "pid": 1, "at": 0.0}))
    check = results.runs(store)
    assert (check.ok, check.detail) == (None, "1 incomplete")
    assert "run the same plan again" in check.fix


# --- services ---------------------------------------------------------------------------------------------------


def test_a_command_over_its_limit_ends_with_its_children(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    code, _, _ = services.run_limited([sys.executable, "-c", parent], {}, limit=2)
    assert code is None
    assert time.monotonic() - started < 20
    pid = int((tmp_path / "pid").read_text())
    # The signal has been sent; the kernel takes a moment on a busy machine.
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", 5, "the child is gone")


def test_an_unreachable_prefect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    check = services.prefect_api()
    assert check.ok is False
    assert "refused" in check.detail.lower()
    assert check.fix == "start that server, or unset PREFECT_API_URL"


def program_outcome(exit_code: int, stdout: bytes, stderr: bytes = b"") -> Outcome:
    return Outcome(
        started=True,
        exit_code=exit_code,
        stdout=stdout,
        stderr=stderr,
        timed_out=False,
        flooded=False,
        seconds=0.1,
    )


class NoSandbox:
    """Runs the program as an ordinary child: everything of the caller's is in its reach."""

    name = "nothing"
    isolates = True

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        done = subprocess.run([sys.executable, "-c", source], input=stdin, capture_output=True, check=True)
        return program_outcome(done.returncode, done.stdout)


class BrokenSandbox(NoSandbox):
    """Does not start the program."""

    def run(self, source: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        return program_outcome(1, b"", b"no permission to create a namespace\n")


def test_a_sandbox_that_hides_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.grading.sandbox, "find_sandbox", lambda: NoSandbox())
    check = services.sandbox()
    assert check.ok is None
    assert f"files ({Path(services.__file__).resolve()})" in check.detail
    assert "environment (PREFECT_HOME, STILLROOM_STORE)" in check.detail.replace("HOSTNAME, ", "")


def test_a_sandbox_that_does_not_start_says_why() -> None:
    assert services.sandbox_leak(BrokenSandbox()) == "no permission to create a namespace"


def test_the_sandbox_of_this_machine_serves() -> None:
    try:
        box = find_sandbox(allow_unsafe=False)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    assert services.sandbox_leak(box) is None


def test_the_other_back_end_is_examined_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_sandbox(allow_unsafe=False)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(evaluation.grading.sandbox, "find_library", lambda: None)
    check = services.sandbox()
    assert check.ok is True and check.detail.endswith("sandlock does not work here: not installed")


def test_without_optional_programs_the_install_line_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> None:
        raise SandboxUnavailableError("bubblewrap is not installed")

    monkeypatch.setattr(evaluation.grading.sandbox, "find_sandbox", none)
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox, browser = services.sandbox(), services.browser(start=True)
    assert (sandbox.ok, sandbox.fix) == (None, INSTALL)
    assert "bubblewrap is not installed" in sandbox.detail
    assert (browser.ok, browser.fix) == (None, services.INSTALL_BROWSER)
