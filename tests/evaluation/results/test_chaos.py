"""Six writers, four readers and an ingestor while writers and ingestor are killed at random, and runs are compacted.

Every line that a writer was told is written is there exactly once at the end, and no reader ever sees an error, a wrong
count or a count that went down.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation.results.compaction import compact
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.snapshot import open_snapshot
from evaluation.results.store import Store

ROOT = Path(__file__).parents[3]
WRITERS, READERS = 6, 4
KILL_EVERY = (0.15, 0.6)
"""Seconds between two kills, drawn at random."""

WRITER = """
import os, sys, time
from pathlib import Path
from evaluation.results.records import StepRecord
from evaluation.results.spool import Spool
parent = os.getppid()
store, run, attempt, acknowledged = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
told = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
update = 0
with Spool(store / "runs" / run, role="trainer", attempt=attempt) as spool:
    while os.getppid() == parent:
        update += 1
        spool.append(StepRecord(run, update, 0, {"loss": update / 7, "nan": None}, {}, float(update)))
        os.write(told, f"{spool.writer} {update - 1}\\n".encode())
        time.sleep(0.001)
"""

READER = """
import os, sys, time
from pathlib import Path
from evaluation.results.snapshot import open_snapshot
parent = os.getppid()
store, stop, reads, last = Path(sys.argv[1]), Path(sys.argv[2]), 0, (0, 0)
while os.getppid() == parent and not stop.exists():
    with open_snapshot(store) as con:
        lines, values = con.execute("SELECT (SELECT count(*) FROM step_costs), (SELECT count(*) FROM steps)").fetchone()
        latest = con.execute("SELECT count(*), count(DISTINCT (run_id, update)) FROM latest_step_costs").fetchone()
    assert values == 2 * lines, (lines, values)
    assert latest[0] == latest[1], latest
    assert (lines, values) >= last, (lines, values, last)
    last, reads = (lines, values), reads + 1
    time.sleep(0.02)
print(reads)
"""

INGESTOR = (
    "import os, pathlib, sys, threading; from evaluation.results.follow import follow; parent = os.getppid(); "
    "follow(pathlib.Path(sys.argv[1]), threading.Event(), poll_seconds=0.05, publish_seconds=0.2, parent_pid=parent)"
)


class Chaos:
    """The processes of one drill and who they are."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.folder = folder
        self.attempts = [0] * WRITERS
        self.processes: list[subprocess.Popen[str]] = []
        self.kills = 0

    def start(self, code: str, *arguments: object, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=environment, stdout=output, text=True
        )
        self.processes.append(process)
        return process

    def writer(self, number: int) -> subprocess.Popen[str]:
        self.attempts[number] += 1
        told = self.folder / f"told-{number}"
        return self.start(WRITER, self.store, f"run-{number}", self.attempts[number], told)

    def ingestor(self) -> subprocess.Popen[str]:
        return self.start(INGESTOR, self.store)

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def told(self) -> set[tuple[str, int]]:
        """(writer, seq) of every line that a writer was told is written."""
        lines = [line for file in self.folder.glob("told-*") for line in file.read_text().splitlines()]
        return {(writer, int(seq)) for writer, _, seq in (line.partition(" ") for line in lines)}


def drill(folder: Path, seconds: float, seed: int) -> Chaos:
    """Run the chaos for ``seconds``; returns it ended, the readers having said that all was well."""
    chaos, random_ = Chaos(folder), random.Random(seed)
    ingest(chaos.store)
    stop = folder / "stop"
    try:
        readers = [chaos.start(READER, chaos.store, stop, output=subprocess.PIPE) for _ in range(READERS)]
        writers = [chaos.writer(number) for number in range(WRITERS)]
        ingestor = chaos.ingestor()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(random_.uniform(*KILL_EVERY))
            number = random_.randrange(WRITERS + 3)
            if number < WRITERS:
                chaos.kill(writers[number])
                writers[number] = chaos.writer(number)
            elif number < WRITERS + 2:
                chaos.kill(ingestor)
                ingestor = chaos.ingestor()
            else:  # spools of writers that died, while others of the same run are written
                compact(chaos.store, f"run-{random_.randrange(WRITERS)}")
        for writer in writers:
            chaos.kill(writer)
        stop.touch()
        said = [reader.communicate(timeout=120)[0] for reader in readers]
        assert [reader.returncode for reader in readers] == [0] * READERS, "a reader failed"
        assert all(int(text.split()[-1]) > 2 for text in said)  # DuckDB may draw a progress bar before it
        chaos.kill(ingestor)
    finally:
        chaos.end()
    return chaos


def check(chaos: Chaos) -> int:
    """Every acknowledged line once, no line twice, after the last ingest and after a rebuild; returns how many."""
    told = chaos.told()
    for again in (ingest, rebuild):
        again(chaos.store)
        with open_snapshot(chaos.store) as con:
            rows = con.execute("SELECT writer, seq FROM step_costs").fetchall()
            values = con.execute("SELECT count(*) FROM steps").fetchone()
            quarantined = con.execute("SELECT count(*) FROM quarantine").fetchone()
        found = set(rows)
        assert len(rows) == len(found), "a line is there twice"
        assert told <= found, f"{len(told - found)} acknowledged lines are lost"
        # At most one line of each killed writer was written and not acknowledged.
        assert len(found - told) <= sum(chaos.attempts)
        assert values == (2 * len(rows),) and quarantined == (0,)
    assert Store(chaos.store).compacted_files()
    return len(told)


@pytest.mark.slow
def test_fifteen_seconds_of_chaos(tmp_path: Path) -> None:
    chaos = drill(tmp_path, 15, seed=1)
    assert chaos.kills >= 8
    assert check(chaos) > 500


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_two_minutes_of_chaos(tmp_path: Path) -> None:
    chaos = drill(tmp_path, 120, seed=2)
    print(f"{check(chaos):,} acknowledged lines, {chaos.kills} kills")
    assert chaos.kills >= 60
