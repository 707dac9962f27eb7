"""`stillroom reproduce`: restore what a run was made of, run it again apart from its store, compare every number."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.errors import StudyError, UsageError
from flows.exporting import find_folder
from flows.identity import REPOSITORY, code_hash, provenance
from flows.report import refusals
from flows.run_folder import RunFolder, StoredRun
from flows.settings import Settings

RERUN = "flows/rerun.py"
"""What a restored tree needs to run one run again."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing a run is made of, and whether it can be had again: True, False, or None for "not the same, go on"."""

    name: str
    ok: bool | None
    detail: str


def reproduce_run(
    settings: Settings, prefix: str, to: Path | None, dry_run: bool, as_json: bool, console: Console
) -> int:
    """Check, restore, run, compare, print. 0 for the same numbers, 1 for others; UsageError where a part is missing."""
    folder = find_folder(settings.store, prefix)
    stored = folder.read()
    if not folder.finished():
        raise UsageError(f"{stored.run_id} has not reached its end: there is nothing to compare with yet")
    recorded = _provenance(settings.store, stored.run_id)
    parts = check_parts(settings.store, stored, recorded)
    if not as_json or dry_run:
        _print_parts(parts, as_json, console)
    lost = [part.name for part in parts if part.ok is False]
    if lost:
        raise UsageError(f"{stored.run_id} cannot be reproduced here: {', '.join(lost)} cannot be restored")
    if dry_run:
        return 0
    place = (to or settings.store / "reproduced" / stored.run_id).absolute()
    code = restore_code(settings.store, place / "code", stored, recorded)
    told = Console(stderr=True) if as_json else console
    _run_again(folder, code, place / "store", told)
    return _compare(settings.store, folder, place / "store", as_json, console)


def check_parts(store: Path, stored: StoredRun, recorded: dict[str, Any]) -> list[Part]:
    """Code, model, data and environment of a run, against what is here."""
    from training.base_models import resolve_model
    from training.sources import load_sources

    same_code = code_hash() == stored.identity["code"]
    parts = [_code_part(store, stored, recorded)]
    try:
        found = resolve_model(stored.spec.model, stored.cache).content_hash
        parts.append(_hash_part("model", stored.spec.model.name, stored.identity["model"], found, same_code))
    except ValueError as error:
        parts.append(Part("model", False, str(error)))
    try:
        found = load_sources(stored.spec, stored.benchmarks_root).content_hash
        parts.append(_hash_part("data", "problems", stored.identity["data"], found, same_code))
    except (ValueError, OSError) as error:
        parts.append(Part("data", False, str(error)))
    here = provenance()
    versions = {"python": recorded.get("python"), **recorded.get("packages", {})}
    now = {"python": here["python"], **here["packages"]}
    other = [f"{name} {old}, here {now.get(name, 'none')}" for name, old in versions.items() if now.get(name) != old]
    parts.append(Part("environment", None if other else True, "; ".join(other) or "the same versions"))
    same = recorded.get("platform") == here["platform"]
    parts.append(Part("machine", True if same else None, f"{recorded.get('host')}, {recorded.get('platform')}"))
    return parts


def _hash_part(name: str, what: str, wanted: str, found: str, same_code: bool) -> Part:
    if wanted == found:
        return Part(name, True, f"{what}: the same content ({wanted[:12]})")
    detail = f"{what}: the content is {found[:12]}, the run had {wanted[:12]}"
    # Other sources may read the same files differently: then the restored ones decide before they run anything.
    return Part(name, False if same_code else None, detail if same_code else f"{detail}; the restored code will decide")


def _code_part(store: Path, stored: StoredRun, recorded: dict[str, Any]) -> Part:
    commit, diff_hash = recorded.get("git_commit"), recorded.get("git_diff_hash")
    same = code_hash() == stored.identity["code"]
    if commit is None:
        detail = "no commit was recorded" + ("; the sources here are the same and are used as they are" if same else "")
        return Part("code", same, detail)
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode:
        detail = f"commit {commit[:12]} is not in {REPOSITORY}"
        return Part(
            "code", same, f"{detail}; the sources here are the same and are used as they are" if same else detail
        )
    patch = store / recorded["git_diff_file"] if recorded.get("git_diff_file") else None
    if diff_hash is not None:
        if patch is None or not patch.is_file():
            reason = "its uncommitted changes were not kept"
            return Part(
                "code", same, f"{reason}; the sources here are the same and are used as they are" if same else reason
            )
        if hashlib.sha256(patch.read_bytes()).hexdigest() != diff_hash:
            return Part("code", False, f"{patch} is not what was kept")
    knows = not _git("cat-file", "-e", f"{commit}:{RERUN}").returncode
    knows = knows or (patch is not None and f"b/{RERUN}".encode() in patch.read_bytes())
    if not knows:
        return Part(
            "code", same, f"commit {commit[:12]} has no {RERUN}" + ("; the sources here are the same" if same else "")
        )
    return Part("code", True, f"commit {commit[:12]}" + (" and its uncommitted changes" if diff_hash else ""))


def restore_code(store: Path, target: Path, stored: StoredRun, recorded: dict[str, Any]) -> Path:
    """A clone at the run's commit with its changes applied, or this tree where the run's sources are the same.

    Raises StudyError when the restored sources are not those of the run.
    """
    part = _code_part(store, stored, recorded)
    if part.detail.endswith(("used as they are", "the same")):
        return REPOSITORY
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    steps = [
        ["git", "clone", "--quiet", "--shared", "--no-checkout", str(REPOSITORY), str(target)],
        ["git", "-C", str(target), "checkout", "--quiet", recorded["git_commit"]],
    ]
    if recorded.get("git_diff_file"):
        patch = str((store / recorded["git_diff_file"]).absolute())
        steps.append(["git", "-C", str(target), "apply", "--binary", "--whitespace=nowarn", patch])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StudyError(f"the code could not be restored: {' '.join(step[:4])} …: {done.stderr.strip()}")
    command = [sys.executable, "-c", "from flows.identity import code_hash; print(code_hash())"]
    done = subprocess.run(command, cwd=target, env=_environment(target), capture_output=True, text=True, check=False)
    if done.stdout.strip() != stored.identity["code"]:
        raise StudyError(f"the sources restored in {target} are not those of the run: {done.stderr.strip()[-200:]}")
    return target


def _environment(code: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "RAY_"))}
    return {**kept, "PYTHONPATH": str(code)}


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, check=False)


def _run_again(folder: RunFolder, code: Path, store: Path, console: Console) -> None:
    console.print(
        f"running again with the code in {code}, store {store}", highlight=False, markup=False, soft_wrap=True
    )
    command = [sys.executable, "-m", "flows.rerun", str(folder.path.absolute()), str(store)]
    done = subprocess.run(command, cwd=code, env=_environment(code), stdout=sys.stderr, check=False)
    if done.returncode:
        raise StudyError(f"running it again failed; its log is in {store / 'logs'}")


def _compare(store: Path, folder: RunFolder, again: Path, as_json: bool, console: Console) -> int:
    from evaluation.results.equality import compare_numbers, equality
    from evaluation.results.snapshot import open_snapshot

    with refusals(), open_snapshot(store) as one, open_snapshot(again) as other:
        found = compare_numbers(one, other, folder.run_id)
    weights = [_weights(RunFolder(root / "runs" / folder.run_id)) for root in (store, again)]
    found.append(equality("weights", *weights))
    is_equal = all(part.is_equal for part in found)
    if as_json:
        print(
            json.dumps({"run": folder.run_id, "equal": is_equal, "parts": [asdict(part) for part in found]}, indent=2)
        )
        return 0 if is_equal else 1
    table = Table("numbers", "rows", "the same", "first difference")
    for part in found:
        same = "[green]yes[/green]" if part.is_equal else "[red]NO[/red]"
        table.add_row(part.what, str(part.rows), same, Text(part.first or ""))
    console.print(table)
    text = "every number is the same, bit for bit" if is_equal else "not every number is the same"
    console.print(f"{folder.run_id}: {text}. The new run is in {again}.", highlight=False, markup=False, soft_wrap=True)
    return 0 if is_equal else 1


def _weights(folder: RunFolder) -> dict[tuple[Any, ...], Any]:
    """Update of each segment -> checksum of the student's weights."""
    from training.checkpoints import STUDENT_FILE

    reports = [folder.recorded_segment(int(file.stem)) for file in (folder.path / "segments").glob("*.json")]
    return {(report.last_update,): report.checksums.get(STUDENT_FILE) for report in reports if report is not None}


def _provenance(store: Path, run_id: str) -> dict[str, Any]:
    from evaluation.results.snapshot import open_snapshot

    with refusals(), open_snapshot(store) as snapshot:
        row = snapshot.execute("SELECT provenance::VARCHAR FROM latest_runs WHERE run_id = ?", [run_id]).fetchone()
    if row is None:
        raise UsageError(f"{run_id} is not in the published results yet: run `stillroom ingest`")
    return json.loads(row[0])


def _print_parts(parts: list[Part], as_json: bool, console: Console) -> None:
    if as_json:
        print(json.dumps([asdict(part) for part in parts], indent=2))
        return
    words = {True: "[green]ok[/green]", False: "[red]CANNOT[/red]", None: "[yellow]other[/yellow]"}
    table = Table("part", "", "found")
    for part in parts:
        table.add_row(part.name, words[part.ok], Text(part.detail))
    console.print(table)
