"""A plan: one study as a YAML file. Validated completely before anything starts (no torch, ray or prefect here)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from evaluation.benchmarks import BENCHMARKS
from evaluation.names import nearest
from flows.expansion import expand, expand_trials
from flows.explain import explain
from flows.plan_spec import Plan, PlanError
from training.base_models import BASE_MODELS

PLANS = Path(__file__).parent / "plans"
"""The studies that ship with Stillroom."""


def load_plan(source: str | Path) -> Plan:
    """Read a plan by path, or by the name of one that ships (``demo``).

    Raises PlanError with the file, the place inside it and the nearest valid name.
    """
    file = _find(source)
    try:
        data = YAML(typ="safe").load(file.read_text())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}" if mark else ""
        raise PlanError(f"{file}{where}: not valid YAML: {error.problem or error.context}") from error
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise PlanError(f"{file}: cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise PlanError(f"{file}: a plan is a mapping with the keys {', '.join(Plan.model_fields)}")
    plan = parse_plan(data, str(file))
    return _from_folder(plan, file.absolute().parent)


def _from_folder(plan: Plan, folder: Path) -> Plan:
    """Relative paths in a plan start at the plan's own folder."""

    def resolved(name: str | None) -> str | None:
        if name is None or name in BENCHMARKS or name.partition("@")[0] in BASE_MODELS:
            return name
        path = folder / Path(name).expanduser()
        return str(path) if path.exists() else name

    data = {place: resolved(getattr(plan.data, place)) for place in ("train", "validation", "test")}
    return plan.model_copy(
        update={
            "data": plan.data.model_copy(update=data),
            "model": plan.model.model_copy(update={"name": resolved(plan.model.name)}),
        }
    )


def parse_plan(data: dict[str, Any], where: str) -> Plan:
    """Validate a plan given as plain values; ``where`` names its source in errors."""
    try:
        plan = Plan.model_validate(data)
    except ValidationError as error:
        raise PlanError(explain(error, Plan, where)) from error
    expand(plan, where)
    expand_trials(plan, where)
    return plan


def _find(source: str | Path) -> Path:
    file = Path(source)
    if file.is_file():
        return file
    shipped = {path.stem: path for path in PLANS.glob("*.yaml")}
    if str(source) in shipped:
        return shipped[str(source)]
    if file.suffix in {".yaml", ".yml"} or os.sep in str(source):
        raise PlanError(f"{source}: no such plan file{nearest(file.stem, sorted(shipped))}")
    raise PlanError(f"no plan named {source!r}{nearest(str(source), sorted(shipped))}")
