"""The facts that workers append to their spools, one dataclass a kind.

A record's identity is (run_id, kind, key); of several attempts at the same fact the views show the highest attempt.
Texts do not travel in records: they are rows of Parquet files under ``samples/`` (see ``spool.write_samples``), and
a record keeps the file, the row and the length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

COST_KEYS = (
    "rollout_tokens",
    "reference_tokens",
    "teacher_tokens",
    "auxiliary_tokens",
    "trained_tokens",
    "flop",
    "wall_seconds",
    "gpu_seconds",
)
"""The keys a ``cost`` may have. All are cumulative over the run; one that was not measured is left out."""


def tuning_plan(plan: str) -> str:
    """The plan whose cells are the trials of ``plan``. No plan of a user's can have the name."""
    return f"{plan}:tuning"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as planned: written by the driver before any work of it starts.

    Runs are content-addressed and belong to no plan: a plan's use of a run is a PlanCell.
    """

    kind: ClassVar[str] = "run"
    run_id: str
    method: str
    """Key in METHODS, or "base" for the evaluation of an untrained model."""
    model: str
    seed: int
    spec: dict[str, Any]
    provenance: dict[str, Any]
    created_at: float

    @property
    def key(self) -> str:
        return "run"


@dataclass(frozen=True, slots=True)
class PlanCell:
    """One cell of a plan and the run that fills it. Several plans may share a run."""

    kind: ClassVar[str] = "plan_cell"
    run_id: str
    plan: str
    plan_hash: str
    position: int
    """Order of the cell's label in the plan's table."""
    label: str
    """What tables call the cell, e.g. "OPSD" or "OPSD, another problem's hint"; seeds of one cell share it."""
    is_control: bool
    base_run_id: str | None
    """The run that holds the evaluation of the untrained model this run starts from (None for a base run)."""
    overrides: dict[str, Any]
    axes: dict[str, Any]
    tags: tuple[str, ...]
    tuning: dict[str, Any] = field(default_factory=dict)
    """Of a run whose settings were chosen: {values, score, chosen (run ids), trials, like (a label or null)}.

    Of a trial, which is a cell of the plan ``tuning_plan(name)``: {of: label of the cell it chooses for}. Else empty.
    """

    @property
    def key(self) -> str:
        return f"{self.plan}/{self.label}"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A change of a run's state: queued, running, done, failed, stopped."""

    kind: ClassVar[str] = "run_event"
    run_id: str
    sequence: int
    status: str
    at: float
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return str(self.sequence)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Metrics of one update and the run's cost up to and including it.

    ``cost`` keys: rollout_tokens, reference_tokens, teacher_tokens, auxiliary_tokens, trained_tokens, flop,
    wall_seconds, gpu_seconds (cumulative). ``metrics`` are finite or None.
    """

    kind: ClassVar[str] = "step"
    run_id: str
    update: int
    """1-based index of the update."""
    segment: int
    metrics: dict[str, float | None]
    cost: dict[str, float]
    at: float

    @property
    def key(self) -> str:
        return str(self.update)


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One training rollout."""

    kind: ClassVar[str] = "rollout"
    run_id: str
    update: int
    index: int
    """Position in the update's batch."""
    problem_id: str
    weights_version: int
    prompt_tokens: int
    completion_tokens: int
    truncated: bool
    verdict: str
    score: float | None
    reward: float | None = None
    """What the method made of the score; None when not scored."""
    sample_file: str | None = None
    sample_row: int | None = None

    @property
    def key(self) -> str:
        return f"{self.update}/{self.index}"


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """One problem that a run was evaluated or trained on."""

    kind: ClassVar[str] = "problem"
    run_id: str
    benchmark: str
    benchmark_version: str
    split: str
    problem_id: str
    cluster: str | None
    answer: str
    prompt: str

    @property
    def key(self) -> str:
        return f"{self.benchmark}/{self.split}/{self.problem_id}"


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One answer of one evaluation; immutable. ``update`` 0 is the untrained model."""

    kind: ClassVar[str] = "answer"
    run_id: str
    update: int
    benchmark: str
    split: str
    problem_id: str
    sample_index: int
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    sample_file: str
    sample_row: int

    @property
    def key(self) -> str:
        return f"{self.update}/{self.benchmark}/{self.split}/{self.problem_id}/{self.sample_index}"


@dataclass(frozen=True, slots=True)
class GradeRecord:
    """The judgement of one answer (same key as the answer, plus grader and version)."""

    kind: ClassVar[str] = "grade"
    run_id: str
    answer_key: str
    grader: str
    version: str
    verdict: str
    score: float | None
    extracted: str | None
    well_formed: bool | None
    lenient: str | None
    error: str | None

    @property
    def key(self) -> str:
        return f"{self.answer_key}/{self.grader}/{self.version}"


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """That an evaluation is complete, with what it cost and where it ran."""

    kind: ClassVar[str] = "evaluation"
    run_id: str
    update: int
    benchmark: str
    split: str
    problems: int
    samples_per_problem: int
    cost: dict[str, float]
    """The training cost at the evaluated checkpoint (same keys as StepRecord.cost)."""
    seconds: float
    at: float

    @property
    def key(self) -> str:
        return f"{self.update}/{self.benchmark}/{self.split}"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One answer looked at token by token; the values are a row of a file (``evaluation.results.traces``)."""

    kind: ClassVar[str] = "trace"
    run_id: str
    source: str
    """"evaluation": an answer of the evaluation after ``update``; "training": a rollout of update ``update``."""
    update: int
    benchmark: str
    split: str
    problem_id: str
    sample_index: int
    """Which of the evaluation's answers to the problem, or the rollout's place in its update."""
    sample_file: str
    sample_row: int
    tokens: int
    verdict: str
    score: float | None
    student_update: int
    """Updates behind the weights that look."""
    term: str | None
    """The method's term that has the teacher; None without a teacher, as are all of the teacher's fields."""
    divergence: str | None
    """Name of the term's divergence."""
    mean_divergence: float | None
    """Mean over the tokens that take part."""
    mean_forward_kl: float | None
    mean_entropy: float
    """The student's."""
    teacher: str | None
    """Whose weights the teacher has."""
    context: str
    """Kind of the teacher's context; "none" where no teacher looked."""
    note: str | None
    """Why no teacher looked."""
    seconds: float
    """What the trace took; in no cost of the run."""

    @property
    def key(self) -> str:
        return f"{self.source}/{self.update}/{self.benchmark}/{self.split}/{self.problem_id}/{self.sample_index}"


MARKS = ("tag", "note", "archive")
"""What a person may say of a run."""


@dataclass(frozen=True, slots=True)
class RunMark:
    """A tag, a note or the archiving of a run, set or taken back; of one mark and value the line written last holds."""

    kind: ClassVar[str] = "mark"
    run_id: str
    mark: str
    """One of MARKS."""
    value: str
    """The tag or the note's text; empty for archive."""
    is_set: bool
    author: str | None
    at: float

    @property
    def key(self) -> str:
        return f"{self.mark}/{self.value}"


Record = (
    RunRecord
    | PlanCell
    | RunEvent
    | StepRecord
    | RolloutRecord
    | ProblemRecord
    | AnswerRecord
    | GradeRecord
    | EvaluationRecord
    | TraceRecord
    | RunMark
)
