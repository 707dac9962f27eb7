"""The command line: ``stillroom …``. Heavy libraries are imported by the commands that need them, on use."""

from flows.cli.entry import main
from flows.cli.evaluating import evaluate, regrade
from flows.cli.reading import benchmarks, compare, methods, plans, query, status
from flows.cli.running import demo, run, sweep
from flows.cli.upkeep import dashboard, doctor, ingest

__all__ = [
    "benchmarks", "compare", "dashboard", "demo", "doctor", "evaluate", "ingest", "main", "methods", "plans", "query",
    "regrade", "run", "status", "sweep",
]  # fmt: skip
