"""kill -9 of the ingestor anywhere, writers that go on meanwhile, readers that never see an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation.results.ingest import ingest
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.store import Store

ROOT = Path(__file__).parents[3]

# Dies at the n-th statement the ingestor runs; a fork each, so that imports are paid once. Between two ingests the
# writer appends more lines, now and then only the beginning of one.
KILLER = """
import os, signal, sys
from pathlib import Path
from evaluation.results import ingest as module
from evaluation.results.records import StepRecord
from evaluation.results.spool import Spool

store, points = Path(sys.argv[1]), [int(n) for n in sys.argv[2].split(",")]
real = module.connect_writer

class Doomed:
    def __init__(self, con, left):
        self.con, self.left = con, left
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.con.close()
    def __getattr__(self, name):
        value = getattr(self.con, name)
        if name in ("execute", "begin", "commit"):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return value

spool = Spool(store / "runs" / "r", role="trainer", attempt=1)
torn = store / "runs" / "torn" / "spool" / "host-9-9.jsonl"
torn.parent.mkdir(parents=True)
killed = update = 0
for point in points:
    for _ in range(20):
        update += 1
        spool.append(StepRecord("r", update, 0, {"loss": 1.0, "norm": 2.0}, {"rollout_tokens": float(update)}, 1.0))
    with torn.open("ab") as file:
        file.write(b"{" if point % 2 else b"}\\n")
    child = os.fork()
    if child == 0:
        module.connect_writer = lambda path: Doomed(real(path), point)
        module.ingest(store)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed += os.WIFSIGNALED(status)
print(killed, update)
"""


def run_killer(store: Path, points: list[int]) -> tuple[int, int]:
    command = [sys.executable, "-c", KILLER, str(store), ",".join(map(str, points))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=200)
    killed, updates = done.stdout.split()
    return int(killed), int(updates)


def check_exactly_once(store: Path, updates: int) -> None:
    ingest(store)
    with open_snapshot(store) as con:
        raw = con.execute("SELECT update FROM step_costs WHERE run_id = 'r' ORDER BY update").fetchall()
        assert [update for (update,) in raw] == list(range(1, updates + 1))  # not one lost, not one twice
        assert con.execute("SELECT count(*) FROM steps").fetchone() == (2 * updates,)
        in_file = (store / "runs" / "torn" / "spool" / "host-9-9.jsonl").read_bytes()
        quarantined = con.execute("SELECT count(*) FROM quarantine").fetchone()
        assert quarantined == (in_file.count(b"\n"),)
        ledger = con.execute("SELECT consumed_bytes FROM ledger ORDER BY file").fetchall()
    sizes = [path.read_bytes().rfind(b"\n") + 1 for path in Store(store).spool_files()]
    assert [size for (size,) in ledger] == sizes


def test_killed_at_any_statement_every_line_is_there_once(tmp_path: Path) -> None:
    points = [3, 30, 8, 11, 14, 17, 20, 23, 26]
    killed, updates = run_killer(tmp_path, points)
    assert killed > len(points) / 2
    check_exactly_once(tmp_path, updates)


@pytest.mark.slow
def test_killed_at_every_statement_every_line_is_there_once(tmp_path: Path) -> None:
    points = [3, 30, *range(1, 36)]
    killed, updates = run_killer(tmp_path, points)
    assert killed > len(points) / 2
    check_exactly_once(tmp_path, updates)


WRITER = """
import sys, time
from pathlib import Path
from evaluation.results.records import StepRecord
from evaluation.results.spool import Spool
run, seconds = sys.argv[1], float(sys.argv[2])
end, update = time.monotonic() + seconds, 0
with Spool(Path(sys.argv[3]) / "runs" / run, role="trainer", attempt=1) as spool:
    while time.monotonic() < end:
        update += 1
        spool.append(StepRecord(run, update, 0, {"loss": 1.0}, {}, 1.0))
        time.sleep(0.002)
print(update)
"""

READER = """
import sys, time
from pathlib import Path
from evaluation.results.snapshot import open_snapshot, snapshot_version
store, end, reads, last = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0, -1
versions = set()
while time.monotonic() < end:
    with open_snapshot(store) as con:
        (count,) = con.execute("SELECT count(*) FROM latest_steps").fetchone()
    assert count >= last, (count, last)
    last, reads = count, reads + 1
    versions.add(snapshot_version(store))
    time.sleep(0.01)
print(reads, len(versions))
"""


def test_eight_writers_two_readers_and_an_ingestor_that_is_killed(tmp_path: Path) -> None:
    seconds = 2.5
    ingest(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(code: str, *arguments: object, output: int = subprocess.PIPE) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, text=True)

    def follow() -> subprocess.Popen[str]:
        code = (
            "import sys, threading, pathlib; from evaluation.results.follow import follow; "
            "follow(pathlib.Path(sys.argv[1]), threading.Event(), poll_seconds=0.05, publish_seconds=0.1)"
        )
        return start(code, tmp_path, output=subprocess.DEVNULL)

    ingestor = follow()
    writers = [start(WRITER, f"run-{i}", seconds, tmp_path) for i in range(8)]
    readers = [start(READER, tmp_path, seconds) for _ in range(2)]
    time.sleep(seconds / 2)
    ingestor.kill()
    ingestor.wait()
    ingestor = follow()
    written = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    read = [reader.communicate(timeout=60)[0].split() for reader in readers]
    ingestor.kill()
    ingestor.wait()
    assert all(writer.returncode == 0 for writer in writers)
    assert all(reader.returncode == 0 for reader in readers), "a reader failed"
    assert all(int(reads) > 3 for reads, _ in read)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        found = con.execute("SELECT count(*), max(update) FROM steps GROUP BY run_id ORDER BY run_id").fetchall()
    assert found == [(count, count) for count in written]
    assert min(written) > 10


def test_follow_ends_cleanly_with_a_last_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "evaluation.results.ingest", str(tmp_path), "--follow"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (tmp_path / "results.ro.duckdb").exists())
        with Spool(tmp_path / "runs" / "r", role="trainer", attempt=1) as spool:
            spool.append(StepRecord("r", 1, 0, {"loss": 1.0}, {}, 1.0))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*) FROM steps").fetchone() == (1,)


def test_follow_ends_when_its_parent_dies(tmp_path: Path) -> None:
    parent = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-m', 'evaluation.results.ingest', sys.argv[1], '--follow']); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", parent, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for(lambda: (tmp_path / "results.ro.duckdb").exists())
        with Spool(tmp_path / "runs" / "r", role="trainer", attempt=1) as spool:
            spool.append(StepRecord("r", 1, 0, {"loss": 1.0}, {}, 1.0))
        process.kill()
    wait_for(lambda: not alive(pid))
    with open_snapshot(tmp_path) as con:
        assert con.execute("SELECT count(*) FROM steps").fetchone() == (1,)


def test_one_pass_as_a_command(tmp_path: Path) -> None:
    with Spool(tmp_path / "runs" / "r", role="trainer", attempt=1) as spool:
        spool.append(StepRecord("r", 1, 0, {"loss": 1.0}, {}, 1.0))
    command = [sys.executable, "-m", "evaluation.results.ingest", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "lines 1" in done.stdout and done.stderr == ""
    done = subprocess.run([*command, "--rebuild"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "rebuilt True" in done.stdout
    (tmp_path / "results.duckdb").write_bytes(b"garbage" * 1000)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "--rebuild" in done.stderr


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether the process still runs (a zombie that nobody collected does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
