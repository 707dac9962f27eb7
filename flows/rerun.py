"""``python -m flows.rerun RUN_FOLDER STORE``: the run of a folder again, in a store of its own.

Started by `stillroom reproduce` in the restored code. Exit code 1 when the run failed or would be another run here.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from flows.environment import prepare_environment
from flows.expansion import Cell
from flows.plan_spec import Plan
from flows.prepare import Checked, PreparedPlan, prepare_cell
from flows.run_folder import RunFolder
from flows.settings import Settings
from flows.sweep import run_prepared
from training.spec import DataSpec, UpdatesBudget

PLAN_NAME = "reproduced"


def rerun(run_folder: Path, store: Path) -> str | None:
    """Do the run again in ``store``; what went wrong, or None."""
    stored = RunFolder(run_folder).read()
    spec = stored.spec
    settings = Settings(store=store, cache=stored.cache, benchmarks=stored.benchmarks_root)
    prepare_environment(store)
    plan = Plan(
        name=PLAN_NAME,
        model=spec.model,
        data=spec.data or DataSpec(train=spec.evaluation.benchmarks[0]),
        budget=UpdatesBudget(updates=0),
        evaluation=spec.evaluation,
        compute=spec.compute,
        cells=(),
    )
    cell = Cell(
        label=stored.run_id,
        method_key=spec.method.key if spec.method else "base",
        seed=spec.seed,
        spec=spec,
        is_control=False,
        overrides={},
        axes={},
        position=0,
    )
    run = prepare_cell(cell, Checked(settings), settings)
    if run.run_id != stored.run_id:
        parts = [part for part, value in stored.identity.items() if run.run.identity.get(part) != value]
        return f"here it would be another run, {run.run_id}: {', '.join(parts)} differ"
    failures = run_prepared(
        PreparedPlan(plan, (run,)), settings, lambda line: print(line, flush=True), lambda _: contextlib.nullcontext()
    )
    return next(iter(failures.values()), None)


def main() -> None:
    problem = rerun(Path(sys.argv[1]), Path(sys.argv[2]))
    if problem is not None:
        print(f"failed: {problem}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
