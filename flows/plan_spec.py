"""What a plan may say: the keys of the YAML file, and what is refused of them by itself (no torch, ray or prefect)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from evaluation.names import nearest
from evaluation.problems import Split
from evaluation.spec import Spec
from flows.errors import UsageError
from training.spec import Budget, ComputeSpec, DataSpec, EvaluationSpec, ModelSpec

TUNING_EXAMPLE = "tuning: {axes: {learning_rate: [0.0002, 0.0005, 0.001]}}"
"""How refusals show what a plan may say."""


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


def _distinct_values(axes: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    for path, values in axes.items():
        if not values:
            raise ValueError(f"axis {path!r} has no values: every cell would vanish")
        if len({repr(value) for value in values}) < len(values):
            raise ValueError(f"axis {path!r} names a value twice")
    return axes


def _distinct_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("seeds repeat: a repeated seed is the same run, not another one")
    return seeds


Axes = Annotated[dict[str, tuple[Any, ...]], AfterValidator(_distinct_values)]
"""Dotted path -> values. ``*`` in a path stands for every name at its place (see flows.paths)."""

Seeds = Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(_distinct_seeds)]


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
    tune: bool | None = None
    """Whether the plan's tuning chooses values for this cell; None: unless it is a control or ``like`` another."""
    tuning: Axes = {}
    """Values of its own on axes of the plan's tuning, as many as the plan has there."""
    like: str | None = None
    """Label of a tuned cell whose chosen values this one takes over."""

    @property
    def is_tuned(self) -> bool:
        """Whether a plan with tuning chooses values for this cell."""
        return self.tune if self.tune is not None else not (self.control or self.like)

    @model_validator(mode="after")
    def _tunes_or_follows(self) -> PlanCell:
        if self.like is not None and (self.tune or self.tuning):
            raise ValueError("like takes another cell's values over: remove tune and tuning, or like")
        if self.tuning and not self.is_tuned:
            raise ValueError("tuning has values for a cell that is not tuned: set tune: true, or remove tuning")
        return self


class Tuning(Spec):
    """Trials that choose settings for every cell, the same number for each.

    A trial is an ordinary run at one combination of values. Its score is the accuracy of its last evaluation, the mean
    over seeds and benchmarks; of equal scores the smaller value wins.
    """

    axes: Axes = Field(min_length=1)
    """Path, or ``learning_rate`` for that of every phase -> values; each cell is tried at every combination."""
    seeds: Seeds = (100,)
    """None of the plan's: what is chosen on a seed would flatter that seed's run."""
    split: Split = "validation"
    budget: Annotated[Budget | None, BeforeValidator(_expand_budget)] = None
    """None takes the plan's."""
    problems: int | None = Field(None, gt=0)
    """None takes the evaluation's."""
    every_updates: int | None = Field(None, gt=0)
    """None takes the evaluation's. Only the last evaluation of a trial counts."""


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
    seeds: Seeds = (0, 1, 2)
    cells: tuple[PlanCell, ...]
    """None at all evaluate the untrained model alone."""
    axes: Axes = {}
    """Dotted path -> values; every cell is run at every combination."""
    tuning: Tuning | None = None
    """Settings that are chosen for each cell on another split before its runs; None runs the cells as they stand."""
    base: bool = True
    """Evaluate the untrained model too, as the row all deltas refer to."""
    resources: Resources = Resources()
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _something_to_do(self) -> Plan:
        if not self.cells and not self.base:
            raise ValueError("no cells and no base: there is nothing to run; add a cell, or set base: true")
        return self

    @model_validator(mode="after")
    def _tuning_is_apart(self) -> Plan:
        if self.tuning is None:
            for index, cell in enumerate(self.cells):
                if cell.tune or cell.tuning or cell.like is not None:
                    raise ValueError(f"cells[{index}] speaks of tuning and the plan has none: add {TUNING_EXAMPLE}")
            return self
        if not any(cell.is_tuned for cell in self.cells):
            raise ValueError("tuning chooses for no cell: all are controls, like another, or have tune: false")
        shared = sorted({*self.seeds} & {*self.tuning.seeds})
        if shared:
            raise ValueError(f"tuning.seeds shares {shared} with seeds: choose on other seeds than the table's")
        if self.tuning.split == self.evaluation.split:
            raise ValueError(
                f"tuning.split and evaluation.split are both {self.tuning.split!r}: what is chosen on the table's own "
                "problems flatters the table"
            )
        return self
