"""`stillroom run`: a one-cell plan made from command-line options."""

from __future__ import annotations

from typing import Any

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.finding import unknown
from evaluation.names import nearest
from flows.plan import parse_plan
from flows.plan_spec import Plan, PlanError
from training.base_models import BASE_MODELS
from training.methods import METHODS, PRESETS

EVALUATIONS = 4
"""An ad-hoc run is evaluated about this many times."""


def adhoc_plan(
    method: str,
    benchmark: str,
    model: str,
    preset: str | None,
    updates: int,
    seeds: tuple[int, ...],
    problems: int | None,
    changes: dict[str, Any],
) -> Plan:
    """The plan ``adhoc-<method>-<benchmark>``; raises PlanError for names that do not exist."""
    if method not in METHODS:
        raise PlanError(f"unknown method {method!r}{nearest(method, sorted(METHODS))}")
    if benchmark not in BENCHMARKS:
        raise PlanError(f"--benchmark: {unknown(benchmark)}")
    if updates < 1:
        raise PlanError(f"--updates must be 1 or more, not {updates}")
    if preset is None and model in BASE_MODELS and "tiny" in PRESETS[method] and model.startswith("tiny"):
        preset = "tiny"
    label = ", ".join(
        [METHODS[method].title, *(f"{path.rsplit('.', 1)[-1]}={value}" for path, value in changes.items())]
    )
    content = {
        "name": f"adhoc-{method}-{benchmark}".replace("_", "-"),
        "title": f"{METHODS[method].title} on {BENCHMARKS[benchmark].title}",
        "model": model,
        "data": benchmark,
        "preset": preset,
        "budget": {"updates": updates},
        "evaluation": {
            "benchmarks": [benchmark],
            "problems": problems,
            "sampling": {"max_new_tokens": BENCHMARKS[benchmark].max_new_tokens, "temperature": 0},
            "every_updates": max(1, updates // EVALUATIONS),
        },
        "seeds": list(seeds),
        "cells": [{"method": method}, {"method": method, "label": label, "set": changes}][: 2 if changes else 1],
    }
    return parse_plan(content, "stillroom run")
