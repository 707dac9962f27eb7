"""What there is to choose from: methods, benchmarks, plans, as rows and as tables (no torch)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from evaluation.benchmarks import BENCHMARKS
from flows.plan import PLANS, load_plan
from training.method import CrossEntropy, Distill, Method, PolicyGradient
from training.methods import METHODS, PRESETS


def method_rows() -> list[dict[str, str]]:
    """One row a method: what the table of the README shows."""
    return [_method_row(method) for method in METHODS.values()]


def _method_row(method: Method) -> dict[str, str]:
    teacher = method.views.get("teacher")
    return {
        "method": method.key,
        "title": method.title,
        "teacher": teacher.weights.kind if teacher else "–",
        "context": teacher.context.kind if teacher else "–",
        "loss": " + ".join(_loss(term) for term in method.terms()),
        "weighting": " + ".join(_weighting(term) for term in method.terms()),
        "paper": method.paper or "–",
        "status": method.status,
    }


def _loss(term: Distill | PolicyGradient | CrossEntropy) -> str:
    if isinstance(term, Distill):
        name = term.divergence.kind
        if name == "jsd":
            name += f" {term.divergence.beta:g}"  # pyrefly: ignore
        return name
    return term.kind


def _weighting(term: Distill | PolicyGradient | CrossEntropy) -> str:
    if isinstance(term, Distill) and term.entry_clip is not None:
        return f"uniform, entry clip {term.entry_clip:g}"
    if isinstance(term, PolicyGradient):
        return f"{term.advantage.kind} advantage, ratio clip {term.clip_low:g}/{term.clip_high:g}"
    return "uniform"


def methods_table() -> Table:
    """The methods as a terminal table."""
    return table_of(method_rows())


def methods_markdown() -> str:
    """The methods as the Markdown table of the README."""
    rows = method_rows()
    columns = ["method", "teacher", "context", "loss", "weighting", "paper", "status"]
    head = [
        "method",
        "teacher weights",
        "privileged context",
        "divergence or loss",
        "token weighting",
        "paper",
        "status",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(_cell(row, column) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(row: dict[str, str], column: str) -> str:
    return f"`{row[column]}`" if column == "method" else row[column].replace("_", " ")


def describe_method(method: Method) -> list[Any]:
    """One method in full: equation, fields with their values, presets, open choices."""
    fields = Table(
        "field", "value", title="Settings (each one is an ablation: --set FIELD=VALUE)", title_justify="left"
    )
    for path, value in flatten(method.model_dump(mode="json", include={"sampling", "batch", "views", "phases"})):
        fields.add_row(Text(path), Text(str(value)))
    parts: list[Any] = [
        Panel(Text(method.equation), title=f"{method.title}  ({method.paper or 'baseline'}, {method.status})"),
        Text(method.summary),
        fields,
    ]
    for name, changes in PRESETS[method.key].items():
        preset = Table("field", "value", title=f"Preset {name}: changes", title_justify="left")
        for path, value in changes.items():
            preset.add_row(Text(path), Text(str(value)))
        parts.append(preset)
    for title, notes in (("Left open by the paper", method.open_choices), ("Code and paper", method.code_differences)):
        if notes:
            table = Table("", "", title=title, title_justify="left", show_header=False)
            for name, note in notes.items():
                table.add_row(Text(name), Text(note))
            parts.append(table)
    return parts


def flatten(value: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted paths and leaf values."""
    for key, inner in value.items():
        path = f"{prefix}{key}"
        if isinstance(inner, dict) and inner:
            yield from flatten(inner, f"{path}.")
        else:
            yield path, inner


def benchmark_rows(root: Path | None) -> list[dict[str, Any]]:
    """One row a benchmark, with whether its files are under ``root``."""
    rows = []
    for benchmark in BENCHMARKS.values():
        absent = [name for name in benchmark.files if root is None or not (root / name).is_file()]
        data = "procedural" if not benchmark.files else "here" if not absent else f"missing: {', '.join(absent)}"
        rows.append(
            {
                "benchmark": benchmark.name,
                "title": benchmark.title,
                "version": benchmark.version,
                "splits": ", ".join(benchmark.splits),
                "licence": benchmark.licence,
                "data": data,
            }
        )
    return rows


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
