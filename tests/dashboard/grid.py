"""A study over two axes and two benchmarks, with a cell that failed and one that the plan leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evaluation.results.ingest import ingest
from evaluation.results.records import PlanCell
from evaluation.results.spool import Spool
from tests.evaluation.results.factory import Cell, Study, base_run_id, write_base, write_evaluation, write_run

PLAN = "grid"
SHARES, ORDERS = (0.5, 0.9), (1, 2, 10)
ACCURACY = {(0.5, 1): 0.3, (0.5, 2): 0.6, (0.9, 1): 0.1, (0.9, 2): 0.9, (0.9, 10): 0.5}
"""Of the cell at (share, order); there is none at (0.5, 10)."""
FAILED = (0.9, 10)
STUDY = Study(plan="parts", updates=4, every=4, problems=24, rollouts=0)
BENCHMARKS = {"addition": 0.0, "chain": -0.05}
"""Benchmark -> what is added to a cell's accuracy there."""


def label(share: float, order: int) -> str:
    """As plans write it."""
    return f"SR-OPSD, share={share}, order={order}"


def write_grid(store: Path) -> None:
    """The plan ``grid``, ingested."""
    write_base(store, STUDY)
    _second_benchmark(store, base_run_id(STUDY), 0, STUDY.base_accuracy, 0)
    with Spool(store / "runs" / "cells", role="driver", attempt=1) as spool:
        spool.append(PlanCell(base_run_id(STUDY), PLAN, "h", 0, "Base", False, None, {}, {}, ()))
        for position, ((share, order), accuracy) in enumerate(ACCURACY.items(), start=1):
            states = ("running", "failed") if (share, order) == FAILED else ("running", "done")
            cell = Cell(label(share, order), "sr_opsd", accuracy, statuses=states)
            own = replace(STUDY, plan=f"part-{position}", cells=(cell,))
            axes = {"distill.mix.share": share, "distill.order": order}
            for seed in STUDY.seeds:
                name = write_run(store, own, cell, seed)
                _second_benchmark(store, name, STUDY.updates, accuracy, seed)
                spool.append(PlanCell(name, PLAN, "h", position, cell.label, False, base_run_id(STUDY), {}, axes, ()))
    ingest(store)


def _second_benchmark(store: Path, run: str, update: int, accuracy: float, seed: int) -> None:
    with Spool(store / "runs" / run, role="evaluator", attempt=1) as spool:
        other = replace(STUDY, benchmark="chain")
        value = max(0.0, accuracy + BENCHMARKS["chain"])
        write_evaluation(store, spool, other, run, update=update, accuracy=value, seed=seed)
