"""The command line: ``stillroom …``. Heavy libraries are imported by the commands that need them, on use."""

from flows.cli.asking import compare, diff, power, query
from flows.cli.entry import main
from flows.cli.evaluating import evaluate, regrade
from flows.cli.reading import benchmarks, methods, plans, status
from flows.cli.running import demo, run, sweep
from flows.cli.runs import archive, export_model, note, reproduce, tag
from flows.cli.storing import compact, export, import_, prune
from flows.cli.upkeep import dashboard, doctor, ingest

__all__ = [
    "archive", "benchmarks", "compact", "compare", "dashboard", "demo", "diff", "doctor", "evaluate", "export",
    "export_model", "import_", "ingest", "main", "methods", "note", "plans", "power", "prune", "query", "regrade",
    "reproduce", "run", "status", "sweep", "tag",
]  # fmt: skip
