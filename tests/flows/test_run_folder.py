"""A run's folder refuses another run's spec, counts attempts, and its locks die with their process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.samplers.base import SamplingParams
from flows.run_folder import RunFolder, RunFolderError, StoredRun
from training.checkpoints import write_json
from training.spec import EvaluationSpec, ModelSpec, RunSpec, UpdatesBudget


def stored(run_id: str, seed: int = 0) -> StoredRun:
    spec = RunSpec(
        method=None,
        model=ModelSpec(name="tiny-demo"),
        data=None,
        budget=UpdatesBudget(updates=0),
        evaluation=EvaluationSpec(benchmarks=("addition",), sampling=SamplingParams(max_new_tokens=4), every_updates=1),
        seed=seed,
    )
    return StoredRun(run_id, spec, {"spec": f"hash of seed {seed}"}, Path("/cache"), None)


def test_round_trip_and_refusal_of_another_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "base-s0-1")
    folder.create(stored("base-s0-1"))
    folder.create(stored("base-s0-1"))
    assert folder.read() == stored("base-s0-1")
    before = folder.spec_file.read_bytes()
    with pytest.raises(RunFolderError, match="holds another run"):
        folder.create(stored("base-s0-1", seed=1))
    assert folder.spec_file.read_bytes() == before


def test_damaged_spec_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(stored("run"))
    folder.spec_file.write_text("{")
    with pytest.raises(RunFolderError, match=r"spec\.json cannot be read"):
        folder.read()


def test_attempts_are_counted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(stored("run"))
    assert [folder.start_attempt() for _ in range(3)] == [1, 2, 3]


def test_a_lock_is_freed_by_the_death_of_its_holder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from flows.run_folder import RunFolder\n"
        f"with RunFolder(Path({str(tmp_path)!r})).hold('run'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert folder.is_held("run")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert not folder.is_held("run")
    with folder.hold("run"):
        assert folder.is_held("run")


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_text() == '{\n "a": 1\n}'
