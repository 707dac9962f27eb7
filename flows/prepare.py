"""Everything that can be refused is refused here, before any process is started."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from evaluation.grading.sandbox import SandboxUnavailableError, find_sandbox
from evaluation.results.records import PlanCell as PlanCellRecord
from evaluation.results.records import RunEvent, RunRecord
from evaluation.results.spool import Spool
from flows.identity import identity, provenance, run_id
from flows.plan import Cell, Plan, PlanError, expand
from flows.run_folder import RunFolder, StoredRun
from flows.settings import Settings
from training.base_models import ResolvedModel, resolve_model
from training.checkpoints import write_json
from training.contexts.build import check_problems
from training.sources import Sources, load_sources, sources_key
from training.spec import ModelSpec, RunSpec


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
    plan: Plan
    runs: tuple[PreparedRun, ...]

    @property
    def base_run_id(self) -> str | None:
        return next((run.run_id for run in self.runs if run.cell.method_key == "base"), None)

    def missing(self) -> list[PreparedRun]:
        return [run for run in self.runs if not run.folder.finished()]


def prepare(plan: Plan, settings: Settings) -> PreparedPlan:
    """Resolve models, load and check data, check prompt lengths, and give every cell its run.

    Raises PlanError, one line that names the place and the fix.
    """
    checked = _Checked(settings)
    try:
        runs = [_prepare_cell(cell, checked, settings) for cell in expand(plan, f"plan {plan.name}")]
    except (ValueError, SandboxUnavailableError) as error:
        raise error if isinstance(error, PlanError) else PlanError(f"plan {plan.name}: {error}") from error
    return PreparedPlan(plan, tuple(runs))


class _Checked:
    """Models and problems already looked at: cells share most of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: dict[ModelSpec, ResolvedModel] = {}
        self.sources: dict[str, Sources] = {}
        self.lengths: set[str] = set()
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
            check_run_lengths(spec, model, sources)
            self.lengths.add(key)


def _prepare_cell(cell: Cell, checked: _Checked, settings: Settings) -> PreparedRun:
    model = checked.model(cell.spec.model)
    sources = checked.source(cell.spec)
    if cell.spec.method is not None:
        check_problems(cell.spec.method, sources.train)
    checked.check_sandbox(sources)
    checked.check_lengths(cell.spec, model, sources)
    parts = identity(cell.spec, model.content_hash, sources.content_hash)
    key = run_id(cell.spec, parts)
    run = StoredRun(key, cell.spec, parts, settings.cache, settings.benchmarks)
    return PreparedRun(cell, run, RunFolder(settings.store / "runs" / key))


def record_plan(prepared: PreparedPlan, settings: Settings, created_at: float) -> None:
    """Write every new run's folder, and which run fills which cell if that is not what was recorded last."""
    edition = {"plan_hash": _plan_hash(prepared.plan), "runs": {run.run_id: run.cell.label for run in prepared.runs}}
    marker = settings.store / "plans" / f"{prepared.plan.name}.json"
    is_current = marker.exists() and json.loads(marker.read_text())["edition"] == edition
    for run in prepared.runs:
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
    base = prepared.base_run_id
    return PlanCellRecord(
        run_id=run.run_id,
        plan=prepared.plan.name,
        plan_hash=_plan_hash(prepared.plan),
        position=run.cell.position,
        label=run.cell.label,
        is_control=run.cell.is_control,
        base_run_id=None if base == run.run_id else base,
        overrides=run.cell.overrides,
        axes=run.cell.axes,
        tags=prepared.plan.tags,
    )
