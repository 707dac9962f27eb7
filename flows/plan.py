"""A plan: one study as a YAML file. Validated completely before anything starts (no torch, ray or prefect here)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from evaluation.benchmarks import BENCHMARKS
from evaluation.names import nearest
from evaluation.spec import Spec
from flows.errors import UsageError
from flows.explain import explain
from training.base_models import BASE_MODELS
from training.method import Method, OverrideError, override_all
from training.methods import METHODS, PRESETS
from training.spec import Budget, ComputeSpec, DataSpec, EvaluationSpec, ModelSpec, RunSpec

PLANS = Path(__file__).parent / "plans"
"""The studies that ship with Stillroom."""

BASE_LABEL = "Base"
"""What tables call the untrained model."""


class PlanError(UsageError):
    """A plan that cannot be run; the message is one line that names the place and the fix."""


def _expand_budget(value: Any) -> Any:
    shorthand = {"updates": "updates", "rollout_tokens": "tokens"}
    if isinstance(value, Mapping) and "kind" not in value:
        if len(value) != 1:
            raise ValueError(f"give exactly one of {', '.join(shorthand)}")
        (kind, amount), *_ = value.items()
        if kind in shorthand:
            return {"kind": kind, shorthand[kind]: amount}
        raise ValueError(f"unknown budget {kind!r}{nearest(str(kind), list(shorthand))}")
    return value


def _expand_model(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _expand_data(value: Any) -> Any:
    return {"train": value} if isinstance(value, str) else value


def available_cpus() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Resources(Spec):
    """Where the work runs. Not part of a run's identity."""

    ray_address: str = "local"
    """"local" starts a private cluster; anything else is an address to join."""
    cpus: int = Field(default_factory=available_cpus, gt=0)
    """CPUs that the private cluster offers."""
    trainers: int | None = Field(None, gt=0)
    """Runs trained side by side; None fills the CPUs."""
    cpus_per_trainer: float = Field(1, ge=0)
    gpus_per_trainer: float = Field(0, ge=0)
    evaluators: int = Field(1, gt=0)
    cpus_per_evaluator: float = Field(0, ge=0)
    """0: evaluations are short and share the trainers' cores."""
    gpus_per_evaluator: float = Field(0, ge=0)

    def refuse_unmet(self, trainers: int) -> None:
        """Raise PlanError when a cluster started here cannot hold the workers asked for."""
        asked = trainers * self.cpus_per_trainer + self.evaluators * self.cpus_per_evaluator
        if self.ray_address == "local" and asked > self.cpus:
            raise PlanError(
                f"resources ask for {asked:g} CPUs ({trainers} trainers of {self.cpus_per_trainer:g}, "
                f"{self.evaluators} evaluators of {self.cpus_per_evaluator:g}) and there are {self.cpus}: lower "
                "resources.trainers or resources.cpus_per_trainer"
            )

    def trainers_for(self, runs: int) -> int:
        """How many trainers a plan of ``runs`` runs gets."""
        if self.trainers is not None:
            return self.trainers
        fit = int(self.cpus / self.cpus_per_trainer) if self.cpus_per_trainer else self.cpus
        return max(1, min(runs, fit))


class PlanCell(Spec):
    """One row of the study's table: a method and what is changed in it."""

    method: str
    label: str | None = Field(None, min_length=1, max_length=120, pattern=r"^[^\x00-\x1f]*$")
    """What tables call the row; None takes the method's title."""
    preset: str | None = None
    """None takes the plan's preset."""
    set: dict[str, Any] = {}
    """Dotted path into the method -> value."""
    control: bool = False
    """A negative control: expected not to learn."""


class Plan(Spec):
    """One study."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)
    title: str = ""
    notes: str = ""
    """Printed under the table."""
    model: Annotated[ModelSpec, BeforeValidator(_expand_model)]
    data: Annotated[DataSpec, BeforeValidator(_expand_data)]
    budget: Annotated[Budget, BeforeValidator(_expand_budget)]
    evaluation: EvaluationSpec
    compute: ComputeSpec = ComputeSpec()
    preset: str | None = None
    set: dict[str, Any] = {}
    """Dotted path into every cell's method -> value."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    cells: tuple[PlanCell, ...] = Field(min_length=1)
    axes: dict[str, tuple[Any, ...]] = {}
    """Dotted path -> values; every cell is run at every combination."""
    base: bool = True
    """Evaluate the untrained model too, as the row all deltas refer to."""
    resources: Resources = Resources()
    tags: tuple[str, ...] = ()

    @field_validator("axes")
    @classmethod
    def _has_values(cls, axes: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for path, values in axes.items():
            if not values:
                raise ValueError(f"axis {path!r} has no values: every cell would vanish")
            if len({repr(value) for value in values}) < len(values):
                raise ValueError(f"axis {path!r} names a value twice")
        return axes

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds repeat: a repeated seed is the same run, not another one")
        return seeds


class Cell(Spec):
    """One run of a plan: a row of the table at one seed."""

    label: str
    method_key: str
    seed: int
    spec: RunSpec
    is_control: bool
    overrides: dict[str, Any]
    axes: dict[str, Any]
    position: int


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


def expand(plan: Plan, where: str = "plan") -> list[Cell]:
    """The runs of a plan, the base first, then cell by cell and seed by seed.

    Raises PlanError naming the cell when a method, preset, path or value does not exist, or two cells are equal.
    """
    cells = [_base_cell(plan)] if plan.base else []
    seen: dict[str, str] = {}
    position = 1
    for index, cell in enumerate(plan.cells):
        for axes in _grid(plan.axes):
            place = f"{where}: cells[{index}]"
            method = build_method(cell, {**plan.set, **cell.set, **axes}, plan.preset, place)
            label = _label(cell, method, axes)
            content = method.model_dump_json()
            if content in seen:
                raise PlanError(f"{place} is the same run as {seen[content]}: remove one of them")
            if label in {other.label for other in cells}:
                raise PlanError(f"{place}: label {label!r} is taken: give the cell a label of its own")
            seen[content] = f"cells[{index}]"
            for seed in plan.seeds:
                cells.append(_cell(plan, cell, method, label, seed, axes, position, place))
            position += 1
    return cells


def build_method(cell: PlanCell, changes: Mapping[str, Any], preset: str | None, place: str) -> Method:
    """The cell's method with its preset and changes applied, or PlanError."""
    if cell.method not in METHODS:
        raise PlanError(f"{place}.method: unknown method {cell.method!r}{nearest(cell.method, sorted(METHODS))}")
    method = METHODS[cell.method]
    name = cell.preset or preset
    try:
        if name is not None:
            presets = PRESETS[cell.method]
            if name not in presets:
                raise PlanError(f"{place}.preset: {cell.method} has no preset {name!r}{nearest(name, sorted(presets))}")
            method = override_all(method, presets[name])
        return override_all(method, changes) if changes else method
    except OverrideError as error:
        raise PlanError(f"{place}.set: {error}") from error


def _grid(axes: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _label(cell: PlanCell, method: Method, axes: Mapping[str, Any]) -> str:
    label = cell.label or method.title
    suffix = ", ".join(f"{path.rsplit('.', 1)[-1]}={value}" for path, value in axes.items())
    return f"{label}, {suffix}" if suffix else label


def _base_cell(plan: Plan) -> Cell:
    spec = RunSpec(
        method=None,
        model=plan.model,
        data=plan.data if "data" in plan.evaluation.benchmarks else None,
        budget={"kind": "updates", "updates": 0},  # pyrefly: ignore
        evaluation=plan.evaluation,
        compute=plan.compute,
        seed=0,
    )
    return Cell(
        label=BASE_LABEL, method_key="base", seed=0, spec=spec, is_control=False, overrides={}, axes={}, position=0
    )


def _cell(
    plan: Plan, cell: PlanCell, method: Method, label: str, seed: int, axes: dict[str, Any], position: int, place: str
) -> Cell:
    try:
        spec = RunSpec(
            method=method,
            model=plan.model,
            data=plan.data,
            budget=plan.budget,
            evaluation=plan.evaluation,
            compute=plan.compute,
            seed=seed,
        )
    except ValidationError as error:
        raise PlanError(explain(error, RunSpec, place)) from error
    return Cell(
        label=label,
        method_key=cell.method,
        seed=seed,
        spec=spec,
        is_control=cell.control,
        overrides={**plan.set, **cell.set},
        axes=axes,
        position=position,
    )
