"""From a plan to its runs: cells times axes times seeds, and the trials that choose settings for the cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from evaluation.names import nearest
from evaluation.spec import Spec
from flows.explain import explain
from flows.paths import matching_paths, single_paths
from flows.plan_spec import Plan, PlanCell, PlanError, Tuning
from training.method import Method, OverrideError, override_all
from training.methods import METHODS, PRESETS
from training.spec import ComputeSpec, RunSpec

BASE_LABEL = "Base"
"""What tables call the untrained model."""

BASE_SEED = 0
"""Seed of the untrained model's answers in a study, whatever the seeds of its runs."""

TRAINING_COMPUTE = ("micro_batch_rows", "head_chunk_tokens")
"""Settings of ``compute`` that no answer of the untrained model depends on."""

_DEFAULT_COMPUTE = ComputeSpec().model_dump()

Values = Mapping[str, Any]
"""Path, as the plan writes it -> value."""


class Cell(Spec):
    """One run of a plan: a row of the table at one seed, or one trial of its tuning."""

    label: str
    method_key: str
    seed: int
    spec: RunSpec
    is_control: bool
    overrides: dict[str, Any]
    axes: dict[str, Any]
    """Values on the plan's axes; of a trial those on the tuning's."""
    position: int
    trial_of: str | None = None
    """Label of the row that a trial chooses for; None for a run of the table."""
    tuned_like: str | None = None
    """Label of the row whose trials chose this run's settings: its own, or the one it is ``like``; None if untuned."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the table: a cell at one point of the plan's axes."""

    cell: PlanCell
    place: str
    label: str
    axes: dict[str, Any]
    position: int
    grid: tuple[dict[str, Any], ...]
    """Combinations that the tuning tries; empty if no values are chosen for the row."""
    source: str | None
    """Label of the row whose trials choose for this one."""

    def method(self, plan: Plan, values: Values) -> Method:
        changes = {**plan.set, **self.cell.set, **self.axes, **values}
        return build_method(self.cell, changes, plan.preset, self.place, "tuning" if values else "set")


def expand(plan: Plan, where: str = "plan", chosen: Mapping[str, Values] | None = None) -> list[Cell]:
    """The runs of a plan's table, the base first, then cell by cell and seed by seed.

    ``chosen`` gives the values of tuned rows by label; a row that is not in it is expanded at the first values of its
    grid, so that everything but the values can be checked. Raises PlanError naming the cell when a method, preset,
    path or value does not exist, or two cells are equal.
    """
    cells = [_base_cell(plan)] if plan.base else []
    for row in _rows(plan, where):
        values = (chosen or {}).get(row.source or "", row.grid[0] if row.grid else {})
        method = row.method(plan, values)
        for seed in plan.seeds:
            cells.append(
                Cell(
                    label=row.label,
                    method_key=row.cell.method,
                    seed=seed,
                    spec=_spec(plan, method, seed, row.place),
                    is_control=row.cell.control,
                    overrides={**plan.set, **row.cell.set, **values},
                    axes=row.axes,
                    position=row.position,
                    tuned_like=row.source,
                )
            )
    return cells


def expand_trials(plan: Plan, where: str = "plan") -> list[Cell]:
    """The trials of a plan's tuning, row by row, the same number for each; none without tuning.

    Raises PlanError as ``expand`` does.
    """
    if plan.tuning is None:
        return []
    asked = _trial_plan(plan, plan.tuning)
    cells: list[Cell] = []
    for row in _rows(plan, where):
        if row.source != row.label:
            continue
        for values in row.grid:
            method = row.method(plan, values)
            for seed in plan.tuning.seeds:
                cells.append(
                    Cell(
                        label=f"{_labelled(row.label, values)} (tuning)",
                        method_key=row.cell.method,
                        seed=seed,
                        spec=_spec(asked, method, seed, row.place),
                        is_control=False,
                        overrides={**plan.set, **row.cell.set, **row.axes},
                        axes=dict(values),
                        position=1 + len(cells) // len(plan.tuning.seeds),
                        trial_of=row.label,
                    )
                )
    return cells


def build_method(cell: PlanCell, changes: Values, preset: str | None, place: str, key: str = "set") -> Method:
    """The cell's method with its preset and changes applied, or PlanError that says the plan's ``key`` is wrong."""
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
        return override_all(method, single_paths(method, changes)) if changes else method
    except OverrideError as error:
        raise PlanError(f"{place}.{key}: {error}") from error


# --- rows ----------------------------------------------------------------------------------------------------------


def _rows(plan: Plan, where: str) -> list[_Row]:
    """Every row of the table but the base's. Raises PlanError."""
    tuned = _tuned_labels(plan, where)
    rows: list[_Row] = []
    seen: dict[str, str] = {}
    taken = {BASE_LABEL} if plan.base else set()
    for index, cell in enumerate(plan.cells):
        place = f"{where}: cells[{index}]"
        for axes in _combinations(plan.axes):
            # Built without chosen values: equal methods on equal grids would be the same runs.
            method = build_method(cell, {**plan.set, **cell.set, **axes}, plan.preset, place)
            label = _labelled(cell.label or METHODS[cell.method].title, axes)
            leader = tuned[cell.like] if cell.like is not None else cell if cell.is_tuned else None
            grid = _grid(plan.tuning, leader, place) if plan.tuning and leader else ()
            content = f"{method.model_dump_json()} {grid}"
            if content in seen:
                raise PlanError(f"{place} is the same run as {seen[content]}: remove one of them")
            if label in taken:
                raise PlanError(f"{place}: label {label!r} is taken: give the cell a label of its own")
            seen[content] = f"cells[{index}]"
            taken.add(label)
            source = _labelled(_cell_label(leader), axes) if grid and leader else None
            row = _Row(cell, place, label, axes, len(rows) + 1, grid, source)
            _refuse_set_and_tuned(plan, row, method)
            rows.append(row)
    return rows


def _tuned_labels(plan: Plan, where: str) -> dict[str, PlanCell]:
    """The tuned cells by label, after checking that every ``like`` names one."""
    if plan.tuning is None:
        return {}
    known = [cell for cell in plan.cells if cell.method in METHODS]
    tuned = {_cell_label(cell): cell for cell in known if cell.is_tuned}
    untuned = {_cell_label(cell) for cell in known if not cell.is_tuned}
    for index, cell in enumerate(plan.cells):
        if cell.like is None or cell.like in tuned:
            continue
        place = f"{where}: cells[{index}].like"
        if cell.like in untuned:
            raise PlanError(f"{place}: no values are chosen for {cell.like!r} itself: name a cell that is tuned")
        raise PlanError(f"{place}: no cell has the label {cell.like!r}{nearest(cell.like, sorted(tuned))}")
    return tuned


def _grid(tuning: Tuning, cell: PlanCell, place: str) -> tuple[dict[str, Any], ...]:
    """The combinations tried for a cell; as many as for every other cell, whatever values it brings of its own."""
    for path, values in cell.tuning.items():
        if path not in tuning.axes:
            raise PlanError(
                f"{place}.tuning: {path!r} is no axis of the plan's tuning{nearest(path, sorted(tuning.axes))}"
            )
        if len(values) != len(tuning.axes[path]):
            raise PlanError(
                f"{place}.tuning.{path}: {len(values)} values, and the plan's tuning has {len(tuning.axes[path])}: "
                "every cell gets the same number of trials"
            )
    return tuple(_combinations({**tuning.axes, **cell.tuning}))


def _refuse_set_and_tuned(plan: Plan, row: _Row, method: Method) -> None:
    """A value that is both given and chosen would be one or the other silently."""
    if not row.grid:
        return
    try:
        chosen = _fields(method, row.grid[0])
        for name, given in (("set", {**plan.set, **row.cell.set}), ("axes", plan.axes)):
            both = sorted(chosen & _fields(method, given))
            if both:
                raise PlanError(f"{row.place}: {both[0]} is in {name} and chosen by tuning: remove it from one of them")
    except OverrideError as error:
        raise PlanError(f"{row.place}.tuning: {error}") from error


def _fields(method: Method, paths: Iterable[str]) -> set[str]:
    return {field for path in paths for field in matching_paths(method, path)}


def _cell_label(cell: PlanCell) -> str:
    return cell.label or METHODS[cell.method].title


def _combinations(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _labelled(label: str, values: Values) -> str:
    suffix = ", ".join(f"{path.rsplit('.', 1)[-1]}={value}" for path, value in values.items())
    return f"{label}, {suffix}" if suffix else label


# --- specs ---------------------------------------------------------------------------------------------------------


def _base_cell(plan: Plan) -> Cell:
    """The untrained model: nothing that matters in training alone is in its spec, so that studies share the run."""
    spec = RunSpec(
        method=None,
        model=plan.model,
        data=plan.data if "data" in plan.evaluation.benchmarks else None,
        budget={"kind": "updates", "updates": 0},  # pyrefly: ignore
        evaluation=plan.evaluation.model_copy(update={"every_updates": 1}),
        compute=plan.compute.model_copy(update={name: _DEFAULT_COMPUTE[name] for name in TRAINING_COMPUTE}),
        seed=BASE_SEED if plan.cells else plan.seeds[0],
    )
    return Cell(
        label=BASE_LABEL,
        method_key="base",
        seed=spec.seed,
        spec=spec,
        is_control=False,
        overrides={},
        axes={},
        position=0,
    )


def _spec(plan: Plan, method: Method, seed: int, place: str) -> RunSpec:
    try:
        return RunSpec(
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


def _trial_plan(plan: Plan, tuning: Tuning) -> Plan:
    """The plan with the evaluation and the budget of its trials."""
    changes = {"split": tuning.split, "problems": tuning.problems, "every_updates": tuning.every_updates}
    given = {name: value for name, value in changes.items() if value is not None}
    evaluation = plan.evaluation.model_copy(update={**given, "retention": (), "trace_problems": 0})
    return plan.model_copy(update={"evaluation": evaluation, "budget": tuning.budget or plan.budget})
