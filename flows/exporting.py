"""`stillroom export-model`: a run's weights as a folder that transformers loads, with a card that says what it is."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evaluation.names import UnknownRunError, run_meant
from flows.errors import UsageError
from flows.run_folder import RunFolder, StoredRun
from flows.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from training.base_models import ResolvedModel

CARD = "README.md"
_NOT_COPIED = {"config.json", "generation_config.json", "model.safetensors.index.json", "recipe.json"}
"""Files of the base that the export writes itself, or that say how the base was made."""


@dataclass(frozen=True, slots=True)
class Score:
    """One benchmark at the exported checkpoint."""

    benchmark: str
    split: str
    accuracy: float
    low: float | None
    high: float | None
    problems: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written where."""

    run_id: str
    update: int
    folder: str
    adapter_merged: bool
    finished: bool
    scores: tuple[Score, ...]


def find_folder(store: Path, prefix: str) -> RunFolder:
    """The folder of the one run whose id begins with ``prefix``; raises UsageError for none and for several."""
    try:
        name = run_meant(prefix, (file.parent.name for file in (store / "runs").glob("*/spec.json")))
    except UnknownRunError as error:
        raise UsageError(str(error)) from error
    return RunFolder(store / "runs" / name)


def print_export(
    settings: Settings, prefix: str, to: Path, update: int | None, as_json: bool, console: Console
) -> None:
    """Export and say what was written."""
    exported = export_model(settings, prefix, to, update)
    if as_json:
        print(json.dumps(asdict(exported), indent=2))
        return
    state = "" if exported.finished else "; the run has not reached its end"
    console.print(
        f"{exported.run_id} after update {exported.update} is in {exported.folder} (model.safetensors, tokenizer, "
        f"{CARD}){state}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def export_model(settings: Settings, prefix: str, to: Path, update: int | None) -> Exported:
    """Write the run's weights after ``update`` (None: its last checkpoint) to the new folder ``to``, whole or not.

    Weights are the fp32 master weights; an adapter is merged: W + (alpha/rank)·B·A. Raises UsageError for a run, a
    checkpoint or a folder that will not do, and where the base model is no longer what the run started from.
    """
    from training.base_models import resolve_model

    folder = find_folder(settings.store, prefix)
    stored = folder.read()
    if to.exists():
        raise UsageError(f"--to {to} is there already: name a folder that is not")
    weights, at, finished = find_checkpoint(folder, stored, update)
    try:
        resolved = resolve_model(stored.spec.model, stored.cache)
    except ValueError as error:
        raise UsageError(f"the base model of {stored.run_id}: {error}") from error
    if resolved.content_hash != stored.identity["model"]:
        raise UsageError(f"{resolved.path} is no longer the model that {stored.run_id} started from: restore it")
    scores = _scores(settings.store, stored.run_id, at)
    temporary = to.with_name(f".{to.name}.{time.time_ns()}.unfinished")
    temporary.mkdir(parents=True)
    try:
        model = _merged(stored, resolved, weights)
        model.save_pretrained(temporary)
        for file in sorted(resolved.path.iterdir()):
            if file.suffix in {".json", ".jinja", ".txt", ".model"} and file.name not in _NOT_COPIED:
                shutil.copyfile(file, temporary / file.name)
        (temporary / CARD).write_text(_card(stored, at, finished, scores, settings.store), encoding="utf-8")
        temporary.replace(to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    adapter = stored.spec.method is not None and stored.spec.method.adapter is not None
    return Exported(stored.run_id, at, str(to), adapter, finished, scores)


def find_checkpoint(folder: RunFolder, stored: StoredRun, update: int | None) -> tuple[Path | None, int, bool]:
    """The file of weights (None: the base's), the update it is from, and whether the run has reached its end.

    ``update`` None takes the last checkpoint. Raises UsageError, which names those that are kept.
    """
    from training.checkpoints import STUDENT_FILE

    if stored.spec.method is None:
        if update not in (None, 0):
            raise UsageError(f"{stored.run_id} is an untrained model: it has update 0 alone")
        return None, 0, True
    numbers = sorted(int(file.stem) for file in (folder.path / "segments").glob("*.json"))
    kept = {}
    for number in numbers:
        report = folder.segment_report(number)
        if report is not None and (folder.path / report.checkpoint).exists():
            kept[report.last_update] = report
    if not kept:
        raise UsageError(f"{stored.run_id} has no checkpoint: it was not trained here, or its checkpoints were pruned")
    at = max(kept) if update is None else update
    if at not in kept:
        raise UsageError(f"{stored.run_id} has no checkpoint after update {at}; kept: {', '.join(map(str, kept))}")
    return folder.path / kept[at].checkpoint / STUDENT_FILE, at, kept[at].finished


def _merged(stored: StoredRun, resolved: ResolvedModel, weights: Path | None) -> PreTrainedModel:
    import torch
    from peft.tuners.lora import LoraLayer
    from safetensors.torch import load_file

    from training.learners.loading import load_base
    from training.learners.weights import load_weights, student_copy, trainable_copy

    base = load_base(resolved.path, resolved.content_hash, torch.device("cpu"))
    if weights is None:
        return base
    adapter = stored.spec.method.adapter if stored.spec.method else None
    student = student_copy(base, adapter, seed=stored.spec.seed)
    load_weights(student, load_file(weights))
    if adapter is None:
        return student
    merged: Any = trainable_copy(base)
    with torch.no_grad():
        for name, layer in student.named_modules():
            if isinstance(layer, LoraLayer):
                merged.get_submodule(name).weight += layer.get_delta_weight("default")
    return merged


def _scores(store: Path, run_id: str, update: int) -> tuple[Score, ...]:
    """Accuracies at the checkpoint with their intervals over problems; empty while nothing is published."""
    from evaluation.results.measures import parse_measure, problem_values
    from evaluation.results.snapshot import NoSnapshotError, open_snapshot
    from evaluation.statistics import problem_interval

    try:
        snapshot = open_snapshot(store)
    except NoSnapshotError:
        return ()
    scores = []
    with snapshot:
        found = snapshot.execute(
            "SELECT benchmark, split, accuracy, n_scored_problems FROM scores "
            "WHERE run_id = ? AND update = ? AND complete AND accuracy IS NOT NULL ORDER BY ALL",
            [run_id, update],
        ).fetchall()
        for benchmark, split, accuracy, problems in found:
            values = problem_values(snapshot, parse_measure("accuracy"), [(run_id, update)], benchmark, split)[run_id]
            interval = problem_interval([v for v, _ in values.values()], [c for _, c in values.values()])
            bounds = (interval.low, interval.high) if interval else (None, None)
            scores.append(Score(benchmark, split, accuracy, *bounds, problems))
    return tuple(scores)


def _card(stored: StoredRun, update: int, finished: bool, scores: tuple[Score, ...], store: Path) -> str:
    spec = stored.spec
    method = spec.method
    head = ["---", f"base_model: {json.dumps(spec.model.name)}", "library_name: transformers", "tags:", "- stillroom"]
    head += [f"- {method.key}"] if method else []
    lines = [*head, "---", "", f"# {stored.run_id}, after update {update}", ""]
    lines += [f"* Method: {method.title} (`{method.key}`)" if method else "* Method: none, the untrained model"]
    lines += [f"* Base model: `{spec.model.name}`, content hash `{stored.identity['model']}`"]
    if spec.data is not None:
        lines += [f"* Training data: `{spec.data.train}`, content hash `{stored.identity['data']}`"]
    lines += [f"* Seed: {spec.seed}", f"* Weights: fp32{', adapter merged' if method and method.adapter else ''}"]
    if not finished:
        lines += ["* This is a checkpoint before the end of the run."]
    lines += ["", "## Scores", ""]
    if scores:
        lines += [
            "| benchmark | split | problems | accuracy % | 95 % interval over problems |",
            "|---|---|--:|--:|--:|",
        ]
    for score in scores:
        low, high = score.low, score.high
        interval = "–" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]"
        lines += [f"| {score.benchmark} | {score.split} | {score.problems} | {100 * score.accuracy:.1f} | {interval} |"]
    lines += [] if scores else ["No evaluation of this checkpoint is in the store."]
    lines += ["", "## Provenance", "", "```json", json.dumps(_provenance(store, stored), indent=2), "```", ""]
    lines += ["## Specification", "", "```json", json.dumps(spec.canonical(), indent=2), "```", ""]
    lines += ["The licence is that of the base model and of the training data.", ""]
    return "\n".join(lines)


def _provenance(store: Path, stored: StoredRun) -> dict[str, Any]:
    """Hashes of what the run is made of, and of its recorded origin the code and the packages."""
    from evaluation.results.snapshot import NoSnapshotError, open_snapshot

    known: dict[str, Any] = {"run_id": stored.run_id, "identity": stored.identity}
    try:
        with open_snapshot(store) as snapshot:
            row = snapshot.execute(
                "SELECT provenance::VARCHAR FROM latest_runs WHERE run_id = ?", [stored.run_id]
            ).fetchone()
    except NoSnapshotError:
        row = None
    recorded = json.loads(row[0]) if row else {}
    wanted = ("git_commit", "git_dirty", "git_diff_hash", "python", "packages")
    return known | {name: recorded[name] for name in wanted if name in recorded}
