"""``python -m tests.bench.large``: a thousand runs, 20 million metric values, 2 million answers; every shipped query.

Prints what was measured beside the bounds, with the machine's load: on a busy machine only the times of the CPU and the
ratio to parsing the same lines mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evaluation.results.compaction import compact
from evaluation.results.compare import compare
from evaluation.results.curves import learning_curves
from evaluation.results.ingest import ingest, rebuild
from evaluation.results.records import StepRecord
from evaluation.results.snapshot import open_snapshot, publish
from evaluation.results.spool import Spool
from evaluation.results.store import Store
from tests.bench.synthetic import LARGE, synthetic_store

QUERIES = Path(__file__).parents[2] / "dashboard" / "queries"
DOCS = Path(__file__).parents[2] / "docs" / "results.md"
INGEST_ROWS_A_SECOND = 300_000
PUBLISH_SECONDS = 1.0
QUERY_SECONDS = 0.5
PARSED_SPOOLS = 20
"""Spools whose lines are parsed as JSON alone, for the ratio."""
TRIES = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """One piece of work: what it took on the clock and of the CPU."""

    work: str
    seconds: float
    cpu_seconds: float
    rows: int = 0
    bound: str = ""
    holds: bool | None = None


def timed(work: str, job: Callable[[], Any], *, tries: int = 1) -> tuple[Timing, Any]:
    """The median of ``tries`` runs of ``job``, and its last result."""
    clock, cpu, result = [], [], None
    for _ in range(tries):
        start, spent = time.perf_counter(), time.process_time()
        result = job()
        clock.append(time.perf_counter() - start)
        cpu.append(time.process_time() - spent)
    return Timing(work, statistics.median(clock), statistics.median(cpu)), result


def measure(folder: Path, scale: float, processes: int) -> Iterator[Timing]:
    """Write, ingest, publish, add, ask, compact, rebuild."""
    shape = replace(LARGE, runs=max(30, round(LARGE.runs * scale)))
    sizes = {name: value for name, value in asdict(shape).items() if name != "runs"}
    wrote, runs = timed(
        "write spools",
        lambda: synthetic_store(folder, runs=shape.runs, ingested=False, processes=processes, **sizes),
    )
    yield wrote
    took, report = timed("ingest", lambda: ingest(folder, publish=False))
    first, published = timed("publish", lambda: publish(folder))
    assert published
    with open_snapshot(folder) as con:
        tables = ("steps", "step_costs", "answers", "grades", "rollouts", "problems", "evaluations")
        counts = {table: con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}
    rows = sum(counts.values())
    rate = rows / took.seconds
    yield replace(
        took,
        work=f"ingest: {report.lines:,} lines, {counts['steps']:,} metric values, {counts['answers']:,} answers",
        rows=rows,
        bound=f">= {INGEST_ROWS_A_SECOND:,} rows/s",
        holds=rate >= INGEST_ROWS_A_SECOND,
    )
    yield replace(first, bound=f"<= {PUBLISH_SECONDS} s", holds=first.seconds <= PUBLISH_SECONDS)
    yield parsing(folder, report.lines)
    yield from increments(folder, runs[1].run_id)
    yield from questions(folder)
    some = [run.run_id for run in runs if run.status == "done"][:50]
    yield timed("compact 50 runs", lambda: [compact(folder, run) for run in some])[0]
    yield replace(timed("rebuild, 50 runs from compacted files", lambda: rebuild(folder))[0], rows=rows)


def parsing(folder: Path, lines: int) -> Timing:
    """The floor: parsing all lines as JSON, from a part of them."""
    spools = Store(folder).spool_files()
    content = [line for path in spools[:: max(1, len(spools) // PARSED_SPOOLS)] for line in path.open("rb")]
    part, _ = timed("", lambda: [json.loads(line) for line in content])
    share = lines / len(content)
    return Timing("parsing the lines and nothing else (extrapolated)", part.seconds * share, part.cpu_seconds * share)


def increments(folder: Path, run: str) -> Iterator[Timing]:
    """What a running study adds: a hundred updates of one run, into the whole store, and the next snapshot."""
    metrics: dict[str, float | None] = {f"probe/{number}": number / 7 for number in range(200)}
    with Spool(folder / "runs" / run, role="trainer", attempt=2) as spool:
        for update in range(1, 101):
            spool.append(StepRecord(run, update, 0, metrics, {}, float(update)))
    yield replace(timed("ingest of 20,000 more values", lambda: ingest(folder, publish=False))[0], rows=20_000)
    again, _ = timed("publish again", lambda: publish(folder))
    yield replace(again, bound=f"<= {PUBLISH_SECONDS} s", holds=again.seconds <= PUBLISH_SECONDS)


def questions(folder: Path) -> Iterator[Timing]:
    """Every query of the dashboard and the docs, the table of a plan and its curves; a connection each, as pages do."""
    for name, sql in [*dashboard_queries(), *documented_queries()]:
        parameters = parameters_of(sql)

        def ask(sql: str = sql, parameters: dict[str, Any] = parameters) -> int:
            with open_snapshot(folder) as con:
                return len(con.execute(sql, parameters).df())

        yield asked(name, ask)

    def table() -> int:
        with open_snapshot(folder) as con:
            return len(compare(con, plan="study-1").rows)

    def curves() -> int:
        with open_snapshot(folder) as con:
            return len(learning_curves(con, "study-1", "addition"))

    yield asked("compare", table)
    yield asked("learning curves", curves)


def asked(name: str, ask: Callable[[], int]) -> Timing:
    """The timing of one question against its bound."""
    took, rows = timed(name, ask, tries=TRIES)
    return replace(took, rows=rows, bound=f"<= {QUERY_SECONDS} s", holds=took.seconds <= QUERY_SECONDS)


def dashboard_queries() -> list[tuple[str, str]]:
    """Name and text of the dashboard's queries."""
    return [(f"dashboard: {path.stem}", path.read_text(encoding="utf-8")) for path in sorted(QUERIES.glob("*.sql"))]


def documented_queries() -> list[tuple[str, str]]:
    """The worked queries of docs/results.md, about a plan of the store."""
    found = re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    texts = [sql.replace("'demo'", "'study-1'") for sql in found]
    return [(f"docs: {' '.join(sql.split())[:60]}", sql) for sql in texts]


def parameters_of(sql: str) -> dict[str, Any]:
    """Values for the parameters that a query names."""
    values = {
        "plan": "study-1",
        "run_id": "study-1-opsd-0.0001-s1",
        "other": "study-1-grpo-0.0001-s1",
        "benchmark": "addition",
        "split": "test",
        "update": 250,
        "metric": "loss",
        "problem_id": "p3",
        "share": 0.2,
        "window": 20,
        "spike": 5.0,
        "floor": 0.1,
        "characters": 12,
        "drop": 0.5,
        "sample_index": 0,
        "source": "evaluation",
    }
    code = re.sub(r"--.*", "", sql)
    return {name: values[name] for name in set(re.findall(r"\$([a-z_]+)", code))}


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit status says whether every bound held."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.large", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the store here (default: a temporary folder)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the thousand runs")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="processes that write the spools")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="still-bench-"))
    timings: list[Timing] = []
    try:
        for timing in measure(folder, options.scale, options.processes):
            timings.append(timing)
            rate = f"{timing.rows / timing.seconds:,.0f} rows/s" if timing.rows else ""
            print(f"{timing.seconds:9.3f} s  {timing.cpu_seconds:9.3f} s CPU  {timing.work}  {rate}", flush=True)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    table = Table("work", "seconds", "CPU seconds", "rows", "bound", "", title=f"load {os.getloadavg()[0]:.1f}")
    for one in timings:
        mark = {True: "holds", False: "MISSED", None: ""}[one.holds]
        table.add_row(one.work, f"{one.seconds:.3f}", f"{one.cpu_seconds:.3f}", f"{one.rows:,}", one.bound, mark)
    Console().print(table)
    if options.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**machine, "timings": [asdict(one) for one in timings]}, indent=1))
    return int(any(one.holds is False for one in timings))


if __name__ == "__main__":
    raise SystemExit(main())
