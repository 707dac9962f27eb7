"""What there is to choose from: benchmarks and plans, as rows and as tables (no torch)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from evaluation.benchmarks import BENCHMARKS
from flows.benchmark_pages import benchmark_data
from flows.plan import PLANS, load_plan


def benchmark_rows(root: Path | None) -> list[dict[str, Any]]:
    """One row a listed benchmark, with whether its files are under ``root``."""
    return [
        {
            "benchmark": benchmark.name,
            "kind": benchmark.kind,
            "title": benchmark.title,
            "version": benchmark.version,
            "splits": ", ".join(benchmark.splits),
            "licence": benchmark.licence,
            "data": benchmark_data(benchmark, root),
        }
        for benchmark in BENCHMARKS.values()
        if benchmark.listed
    ]


def plan_rows() -> list[dict[str, Any]]:
    """One row a shipped plan."""
    rows = []
    for file in sorted(PLANS.glob("*.yaml")):
        plan = load_plan(file)
        rows.append(
            {
                "plan": plan.name,
                "title": plan.title,
                "model": plan.model.name,
                "cells": len(plan.cells),
                "seeds": len(plan.seeds),
                "benchmarks": ", ".join(plan.evaluation.benchmarks),
            }
        )
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Rows with equal keys as a terminal table."""
    if not rows:
        return Table(title="nothing here yet")
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    return table
