"""Side by side with MLflow and trackio: the same rows logged, the same questions asked, one process each.

``python -m tests.bench.trackers --peers PYTHON`` runs this file once per tracker, ours with this Python and the others
with PYTHON, an environment made from ``infra/trackers.txt``. Imports are not timed. Logging counts until rows can be
read: for us append, ingest and publish. The others get their fastest way in: MLflow 1000 metrics a call into SQLite,
trackio a whole run a call into its SQLite.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TRACKERS = ("stillroom", "mlflow", "trackio")
METRICS = 20
RATES = ("0.0001", "0.001")
QUESTIONS = ("last", "curve", "filter")
TRIES = 3
MLFLOW_BATCH = 1_000
"""The most metrics that MLflow takes in one call."""


def runs_of(count: int) -> list[dict[str, str]]:
    """Parameters of each run."""
    return [
        {"method": f"m{number // 4 % 5}", "lr": RATES[number % 2], "seed": str(number // 2 % 2), "name": f"run{number}"}
        for number in range(count)
    ]


def value_of(run: int, metric: int, step: int) -> float:
    """A value that no two places share."""
    return math.sin(run * 7 + metric) + step / 1000


def steps_of(run: int, steps: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The metrics of each step."""
    for step in range(1, steps + 1):
        yield step, {f"metric_{metric}": value_of(run, metric, step) for metric in range(METRICS)}


# --- one tracker, in its own process -------------------------------------------------------------------------------


def stillroom(folder: Path, count: int, steps: int) -> tuple[Callable[[], None], dict[str, Callable[[], Any]]]:
    """Logging and the three questions."""
    from evaluation.results.ingest import ingest
    from evaluation.results.records import RunRecord, StepRecord
    from evaluation.results.snapshot import open_snapshot
    from evaluation.results.spool import Spool

    def log() -> None:
        for number, run in enumerate(runs_of(count)):
            with Spool(folder / "runs" / run["name"], role="trainer", attempt=1) as spool:
                spool.append(RunRecord(run["name"], run["method"], "tiny", int(run["seed"]), dict(run), {}, 1.0))
                for step, metrics in steps_of(number, steps):
                    spool.append(StepRecord(run["name"], step, 0, dict(metrics), {}, float(step)))
        ingest(folder)

    opened: list[Any] = []

    def asked(sql: str) -> Any:
        if not opened:  # MLflow's engine keeps its connection too
            opened.append(open_snapshot(folder))
        return opened[0].execute(sql).fetchall()

    return log, {
        "last": lambda: dict(
            asked("SELECT run_id, arg_max(value, update) FROM latest_steps WHERE name = 'metric_3' GROUP BY run_id")
        ),
        "curve": lambda: [
            mean
            for (mean,) in asked(
                "SELECT avg(value) FROM latest_steps s JOIN latest_runs r USING (run_id) "
                "WHERE name = 'metric_3' AND method = 'm0' GROUP BY update ORDER BY update"
            )
        ],
        "filter": lambda: sorted(
            run for (run,) in asked("SELECT run_id FROM latest_runs WHERE spec ->> '$.lr' = '0.001'")
        ),
    }


def mlflow(folder: Path, count: int, steps: int) -> tuple[Callable[[], None], dict[str, Callable[[], Any]]]:
    """Logging and the three questions."""
    import numpy as np
    from mlflow.entities import Metric, Param  # pyrefly: ignore
    from mlflow.tracking import MlflowClient  # pyrefly: ignore

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    ids: dict[str, str] = {}

    def log() -> None:
        for number, run in enumerate(runs_of(count)):
            ids[run["name"]] = run_id = client.create_run(experiment, run_name=run["name"]).info.run_id
            client.log_batch(run_id, params=[Param(key, value) for key, value in run.items()])
            batch = []
            for step, metrics in steps_of(number, steps):
                batch += [Metric(name, value, 1000 * step, step) for name, value in metrics.items()]
                if len(batch) + METRICS > MLFLOW_BATCH:
                    client.log_batch(run_id, metrics=batch)
                    batch = []
            if batch:
                client.log_batch(run_id, metrics=batch)
            client.set_terminated(run_id)

    def found(condition: str = "") -> Any:
        return client.search_runs([experiment], condition, max_results=10_000)

    def curve() -> list[float]:
        runs = found("params.method = 'm0'")
        histories = [client.get_metric_history(run.info.run_id, "metric_3") for run in runs]
        return np.mean([[point.value for point in sorted(h, key=lambda p: p.step)] for h in histories], axis=0).tolist()

    return log, {
        "last": lambda: {run.data.params["name"]: run.data.metrics["metric_3"] for run in found()},
        "curve": curve,
        "filter": lambda: sorted(run.data.params["name"] for run in found("params.lr = '0.001'")),
    }


def trackio(folder: Path, count: int, steps: int) -> tuple[Callable[[], None], dict[str, Callable[[], Any]]]:
    """Logging and the three questions."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import numpy as np
    from trackio.sqlite_storage import SQLiteStorage  # pyrefly: ignore

    def log() -> None:
        for number, run in enumerate(runs_of(count)):
            rows = list(steps_of(number, steps))
            SQLiteStorage.bulk_log(
                "bench",
                run["name"],
                [metrics for _, metrics in rows],
                steps=[step for step, _ in rows],
                config=dict(run),
            )

    def history(name: str) -> list[float]:
        return [row["metric_3"] for row in sorted(SQLiteStorage.get_logs("bench", name), key=lambda row: row["step"])]

    def configs() -> dict[str, Any]:
        return SQLiteStorage.get_all_run_configs("bench")

    def curve() -> list[float]:
        names = [name for name, config in configs().items() if config["method"] == "m0"]
        return np.mean([history(name) for name in names], axis=0).tolist()

    return log, {
        "last": lambda: {name: history(name)[-1] for name in SQLiteStorage.get_runs("bench")},
        "curve": curve,
        "filter": lambda: sorted(name for name, config in configs().items() if config["lr"] == "0.001"),
    }


def one(name: str, folder: Path, count: int, steps: int) -> None:
    """Log and ask with one tracker; prints seconds and answers as JSON."""
    log, questions = {"stillroom": stillroom, "mlflow": mlflow, "trackio": trackio}[name](folder, count, steps)
    seconds, answers = {"log": _seconds(log)[0]}, {}
    for question in QUESTIONS:
        tries = [_seconds(questions[question]) for _ in range(TRIES)]
        seconds[question] = min(took for took, _ in tries)
        answers[question] = tries[-1][1]
    print("RESULT " + json.dumps({"seconds": seconds, "answers": answers}))


def _seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


# --- all of them ----------------------------------------------------------------------------------------------------


def ask(name: str, python: str, count: int, steps: int) -> dict[str, Any]:
    """``one`` in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="still-bench-") as folder:
        command = [python, "-m", "tests.bench.trackers", "--one", name, "--folder", folder]
        done = subprocess.run(
            [*command, "--runs", str(count), "--steps", str(steps)], capture_output=True, text=True, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"{name} failed: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def check(results: dict[str, dict[str, Any]]) -> None:
    """All trackers must have given the same answers; raises SystemExit."""
    ours = results["stillroom"]["answers"]
    for name, result in results.items():
        theirs = result["answers"]
        same = theirs["last"].keys() == ours["last"].keys() and theirs["filter"] == ours["filter"]
        pairs = [(theirs["last"][run], value) for run, value in ours["last"].items()] if same else []
        pairs += list(zip(theirs["curve"], ours["curve"], strict=True))
        if not same or not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in pairs):
            raise SystemExit(f"{name} gave other answers than ours")


def main() -> int:
    """Print the table of seconds and of how many times ours the others took; the exit status says whether we led."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trackers", description=__doc__)
    parser.add_argument("--peers", help="the Python that has MLflow and trackio")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2_500, help=f"of {METRICS} metrics each")
    parser.add_argument("--json", type=Path, help="also write the seconds here")
    parser.add_argument("--one", choices=TRACKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.folder, options.runs, options.steps)
        return 0
    if not options.peers:
        parser.error("name the Python of an environment made from infra/trackers.txt with --peers")
    pythons = {name: sys.executable if name == "stillroom" else options.peers for name in TRACKERS}
    results = {name: ask(name, pythons[name], options.runs, options.steps) for name in TRACKERS}
    check(results)
    seconds = {name: result["seconds"] for name, result in results.items()}
    print(f"{options.runs} runs, {options.runs * options.steps * METRICS:,} values, load {os.getloadavg()[0]:.1f}")
    for work in ("log", *QUESTIONS):
        ours = seconds["stillroom"][work]
        others = "  ".join(
            f"{name} {seconds[name][work]:8.3f} s ({seconds[name][work] / ours:6.1f} x)" for name in TRACKERS[1:]
        )
        print(f"{work:8} ours {ours:8.3f} s  {others}")
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg()[0], "seconds": seconds}, indent=1))
    return int(any(seconds[n][w] < seconds["stillroom"][w] for n in TRACKERS for w in seconds["stillroom"]))


if __name__ == "__main__":
    raise SystemExit(main())
