"""Everything that can be refused is refused here, before any process is started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.grading.sandbox import SandboxUnavailableError, find_sandbox
from evaluation.results.records import PlanCell as PlanCellRecord
from evaluation.results.records import RunEvent, RunRecord, tuning_plan
from evaluation.results.spool import Spool
from flows.expansion import Cell, expand, expand_trials
from flows.identity import identity, keep_changes, provenance, run_id
from flows.plan_spec import Plan, PlanError
from flows.run_folder import RunFolder, StoredRun
from flows.settings import Settings
from flows.tuning import Choice, NothingToChooseError, Trial, choose, read_trial_run
from training.base_models import ResolvedModel, resolve_model
from training.checkpoints import write_json
from training.contexts.checks import check_problems
from training.sources import Sources, load_sources, sources_key
from training.spec import ModelSpec, RunSpec

if TYPE_CHECKING:
    from training.lengths import TokenCounts


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """One cell with the run that fills it."""

    cell: Cell
    run: StoredRun
    folder: RunFolder

    @property
    def run_id(self) -> str:
        return self.run.run_id


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan's runs as far as they are known: settings that tuning chooses are known when its trials are done."""

    plan: Plan
    runs: tuple[PreparedRun, ...]
    trials: tuple[PreparedRun, ...] = ()
    waiting: tuple[Cell, ...] = ()
    """Runs of the table whose settings are not chosen yet; their specs hold the first values of the grid."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """By label of the row that was tuned."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Label of a row that cannot run -> why."""

    @property
    def base_run_id(self) -> str | None:
        return next((run.run_id for run in self.runs if run.cell.method_key == "base"), None)

    def missing(self) -> list[PreparedRun]:
        """What is not done, each run once, trials first."""
        wanted = {run.run_id: run for run in (*self.trials, *self.runs)}
        return [run for run in wanted.values() if not run.folder.finished()]


def prepare(
    plan: Plan, settings: Settings, *, gave_up: Callable[[Path], bool] = lambda _: False, checked: Checked | None = None
) -> PreparedPlan:
    """Resolve models, load and check data, check prompt lengths, choose what can be chosen, give every cell its run.

    ``gave_up`` says of an unfinished trial's folder whether it counts as failed; by default none does, and the rows
    it chooses for wait. ``checked`` saves looking at models and data again. Raises PlanError, one line that names the
    place and the fix.
    """
    checked = checked or Checked(settings)
    where = f"plan {plan.name}"
    try:
        trials = [prepare_cell(cell, checked, settings) for cell in expand_trials(plan, where)]
        choices, refused = _choose(trials, gave_up)
        runs, waiting = [], []
        for cell in expand(plan, where, {label: choice.values for label, choice in choices.items()}):
            run = prepare_cell(cell, checked, settings)
            if cell.tuned_like is None or cell.tuned_like in choices:
                runs.append(run)
            elif cell.tuned_like not in refused:
                waiting.append(cell)
            else:
                refused.setdefault(cell.label, f"{cell.label}: {refused[cell.tuned_like]}")
    except (ValueError, SandboxUnavailableError) as error:
        raise error if isinstance(error, PlanError) else PlanError(f"plan {plan.name}: {error}") from error
    return PreparedPlan(plan, tuple(runs), tuple(trials), tuple(waiting), choices, refused)


def _choose(
    prepared: Sequence[PreparedRun], gave_up: Callable[[Path], bool]
) -> tuple[dict[str, Choice], dict[str, str]]:
    """The choice of every row whose trials are all settled, and why a row has none though they are; by label."""
    rows: dict[str, dict[str, list[PreparedRun]]] = {}
    for run in prepared:
        rows.setdefault(run.cell.trial_of or "", {}).setdefault(run.cell.label, []).append(run)
    choices, refused = {}, {}
    for label, combinations in rows.items():
        trials = [
            Trial(runs[0].cell.axes, tuple(read_trial_run(r.folder.path, r.cell.seed, gave_up) for r in runs))
            for runs in combinations.values()
        ]
        try:
            choice = choose(label, trials)
        except NothingToChooseError as error:
            refused[label] = str(error)
        else:
            if choice is not None:
                choices[label] = choice
    return choices, refused


class Checked:
    """Models and problems already looked at: cells share most of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: dict[ModelSpec, ResolvedModel] = {}
        self.sources: dict[str, Sources] = {}
        self.lengths: set[str] = set()
        self.counts: dict[str, TokenCounts] = {}
        """By the model's content hash."""
        self.has_sandbox = False

    def model(self, spec: ModelSpec) -> ResolvedModel:
        if spec not in self.models:
            self.models[spec] = resolve_model(spec, self.settings.cache)
        return self.models[spec]

    def source(self, spec: RunSpec) -> Sources:
        key = sources_key(spec)
        if key not in self.sources:
            self.sources[key] = load_sources(spec, self.settings.benchmarks)
        return self.sources[key]

    def check_sandbox(self, sources: Sources) -> None:
        """Code answers need a sandbox that really starts here."""
        asked = [problem for _, problems in sources.evaluations.values() for problem in problems]
        if not self.has_sandbox and any(problem.tests for problem in [*sources.train, *asked]):
            find_sandbox()
            self.has_sandbox = True

    def check_lengths(self, spec: RunSpec, model: ResolvedModel, sources: Sources) -> None:
        from training.lengths import check_run_lengths, lengths_key

        key = lengths_key(spec)
        if key not in self.lengths:
            check_run_lengths(spec, model, sources, self.counts.setdefault(model.content_hash, {}))
            self.lengths.add(key)


def prepare_cell(cell: Cell, checked: Checked, settings: Settings) -> PreparedRun:
    model = checked.model(cell.spec.model)
    sources = checked.source(cell.spec)
    if cell.spec.method is not None:
        check_problems(cell.spec.method, sources.train, sources.train_benchmark)
    checked.check_sandbox(sources)
    checked.check_lengths(cell.spec, model, sources)
    parts = identity(cell.spec, model.content_hash, sources.content_hash)
    key = run_id(cell.spec, parts)
    run = StoredRun(key, cell.spec, parts, settings.cache, settings.benchmarks)
    return PreparedRun(cell, run, RunFolder(settings.store / "runs" / key))


def record_plan(prepared: PreparedPlan, settings: Settings, created_at: float) -> None:
    """Write every new run's folder, and which run fills which cell if that is not what was recorded last."""
    marker = settings.store / "plans" / f"{prepared.plan.name}.json"
    edition = _edition(prepared)
    keep_changes(settings.store)
    is_current = marker.exists() and json.loads(marker.read_text())["edition"] == edition
    # Trials first: the plan itself is then the one recorded last, which is what tables show unasked.
    for run in (*prepared.trials, *prepared.runs):
        is_new = not run.folder.spec_file.exists()
        if is_new or not is_current:
            run.folder.path.mkdir(parents=True, exist_ok=True)
            with Spool(run.folder.path, role="driver", attempt=1) as spool:
                if is_new:
                    spool.append(_run_record(run, created_at))
                    spool.append(RunEvent(run.run_id, 0, "queued", created_at))
                spool.append(_cell_record(run, prepared))
        run.folder.create(run.run)
    if not is_current:
        write_json(marker, {"edition": edition, "plan": prepared.plan.model_dump(mode="json")})


def _edition(prepared: PreparedPlan) -> dict[str, Any]:
    """Which run fills which cell, and of a tuned plan what was chosen from which trials and what still waits."""
    edition: dict[str, Any] = {"plan_hash": _plan_hash(prepared.plan), "runs": _labels(prepared.runs)}
    if prepared.plan.tuning is not None:
        edition["trials"] = _labels(prepared.trials)
        edition["choices"] = {label: choice.to_record() for label, choice in prepared.choices.items()}
        edition["waiting"] = [[cell.label, cell.seed] for cell in prepared.waiting]
    return edition


def _labels(runs: Sequence[PreparedRun]) -> dict[str, str]:
    """run_id -> label; two rows that chose the same settings share a run."""
    labels: dict[str, list[str]] = {}
    for run in runs:
        labels.setdefault(run.run_id, []).append(run.cell.label)
    return {run_id: "; ".join(shared) for run_id, shared in labels.items()}


def _plan_hash(plan: Plan) -> str:
    return hashlib.sha256(plan.model_dump_json(exclude={"resources", "notes", "title"}).encode()).hexdigest()[:12]


def _run_record(run: PreparedRun, created_at: float) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        method=run.cell.method_key,
        model=run.run.spec.model.name,
        seed=run.run.spec.seed,
        spec=run.run.spec.canonical(),
        provenance={**provenance(), "identity": run.run.identity},
        created_at=created_at,
    )


def _cell_record(run: PreparedRun, prepared: PreparedPlan) -> PlanCellRecord:
    cell, plan = run.cell, prepared.plan
    is_trial, base = cell.trial_of is not None, prepared.base_run_id
    return PlanCellRecord(
        run_id=run.run_id,
        plan=tuning_plan(plan.name) if is_trial else plan.name,
        plan_hash=_plan_hash(plan),
        position=cell.position,
        label=cell.label,
        is_control=cell.is_control,
        base_run_id=None if is_trial or base == run.run_id else base,
        overrides=cell.overrides,
        axes=cell.axes,
        tags=plan.tags,
        tuning=_tuning_record(cell, prepared),
    )


def _tuning_record(cell: Cell, prepared: PreparedPlan) -> dict[str, Any]:
    if cell.trial_of is not None:
        return {"of": cell.trial_of}
    if cell.tuned_like is None:
        return {}
    like = cell.tuned_like if cell.tuned_like != cell.label else None
    return {**prepared.choices[cell.tuned_like].to_record(), "like": like}
