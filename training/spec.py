"""What a run is: the value that decides every number it produces (no torch here)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from evaluation.data import Grader
from evaluation.problems import Split
from evaluation.samplers.base import SamplingParams
from evaluation.spec import Spec
from training.method import Method


class ModelSpec(Spec):
    """Which model, and how privileged context is put into its prompt."""

    name: str
    """A key of training.base_models.BASE_MODELS (e.g. "tiny-demo"), a local folder, or a hub id."""
    privileged_template: str | None = None
    """User turn with context; fields {problem} and {context}. None takes the base model's own, else the default."""
    system_prompt: str | None = None


class DataSpec(Spec):
    """Where training problems come from: a benchmark's train split, or JSONL files of the user's own."""

    train: str
    """A benchmark name or a path to a JSONL file (problem, solution, answer, tests)."""
    validation: str | None = None
    """A path; None with a path as ``train`` holds out a share (see evaluation.data)."""
    test: str | None = None
    grader: Grader | None = None
    """How the user's own answers are graded (see evaluation.data); benchmarks bring their grader."""
    limit: int | None = Field(None, gt=0)
    """Keep the first so many training problems."""


class UpdatesBudget(Spec):
    kind: Literal["updates"] = "updates"
    updates: int = Field(ge=0, le=10**9)


class RolloutTokensBudget(Spec):
    """Ends with the first update at which the response tokens spent reach ``tokens``.

    A method that trains on references instead of rollouts is charged its reference tokens.
    """

    kind: Literal["rollout_tokens"] = "rollout_tokens"
    tokens: int = Field(gt=0)


Budget = Annotated[UpdatesBudget | RolloutTokensBudget, Field(discriminator="kind")]


class EvaluationSpec(Spec):
    """When and on what a run is evaluated. The student never sees privileged context here."""

    benchmarks: tuple[str, ...]
    """Benchmark names; "data" is the test split of the user's own data."""
    retention: tuple[str, ...] = ()
    """Benchmarks that are asked before and after training only: what a run must not forget."""
    split: Split = "test"
    problems: int | None = Field(None, gt=0)
    """First so many problems; None takes all."""
    samples: int = Field(1, gt=0)
    sampling: SamplingParams
    thinking: bool | None = None
    """The chat template's thinking switch; None leaves it to the template."""
    every_updates: int = Field(gt=0)
    trace_problems: int = Field(8, ge=0)
    """First so many problems of each benchmark whose first answer is stored token by token; 0 stores none."""

    @model_validator(mode="after")
    def _samples_differ(self) -> EvaluationSpec:
        if self.samples > 1 and self.sampling.temperature == 0:
            raise ValueError("samples above 1 at temperature 0 would be the same answer again: set a temperature")
        if not self.benchmarks or len(set(self.benchmarks)) < len(self.benchmarks):
            raise ValueError("benchmarks must name at least one, each once")
        if len({*self.benchmarks, *self.retention}) < len(self.benchmarks) + len(self.retention):
            raise ValueError("retention and benchmarks must not name a benchmark twice: it is asked in either of them")
        return self


class ComputeSpec(Spec):
    """Numerical set-up: part of a run's identity because it changes rounding."""

    precision: Literal["float32", "bfloat16_autocast"] = "float32"
    """bfloat16_autocast: fp32 master weights, bf16 autocast, bf16 frozen views and sampling copy."""
    threads: int = Field(1, gt=0)
    micro_batch_rows: int = Field(64, gt=0)
    head_chunk_tokens: int = Field(1024, gt=0)
    sampling_rows: int = Field(256, gt=0)
    """Most rows decoded at once."""


class RunSpec(Spec):
    """Everything that decides a run's numbers. ``method`` None evaluates the untrained model."""

    method: Method | None
    model: ModelSpec
    data: DataSpec | None
    budget: Budget
    evaluation: EvaluationSpec
    compute: ComputeSpec = ComputeSpec()
    seed: int = Field(ge=0, lt=2**63)

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        if self.method is not None and isinstance(self.budget, UpdatesBudget) and self.budget.updates == 0:
            raise ValueError("budget: 0 updates train nothing: give 1 or more, or only the base")
        if self.method is not None and self.data is None:
            raise ValueError("a method needs data to train on: set data.train")
        for name, phase in self.method.phases.items() if self.method is not None else ():
            if isinstance(self.budget, UpdatesBudget) and phase.every > self.budget.updates:
                raise ValueError(
                    f"phases.{name}.every: {phase.every} is more than the budget's {self.budget.updates} updates, so "
                    "the phase would never run: lower it or give more updates"
                )
        return self

    def canonical(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
