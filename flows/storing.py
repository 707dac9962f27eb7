"""What `stillroom compact`, `prune`, `export` and `import` do and print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from evaluation.names import UnknownRunError, nearest, run_meant
from flows.errors import StudyError, UsageError
from flows.report import refusals
from flows.run_folder import RunFolder

if TYPE_CHECKING:
    import duckdb

MOST_LISTED = 20
"""Things of one kind that are listed one by one; JSON lists all."""


def human_bytes(count: int) -> str:
    """``count`` as people read it, in powers of 1024."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def print_compaction(store: Path, prefixes: Sequence[str], as_json: bool, console: Console) -> None:
    """Compact the done runs among those named (none: among all) and say what that saved."""
    from evaluation.results.compacted import CompactedError
    from evaluation.results.compaction import CompactionError, compact
    from evaluation.results.ingest import ingest

    if not (store / "runs").is_dir():
        raise UsageError(f"no runs in {store}")
    folders = [RunFolder(store / "runs" / name) for name in _named_folders(store, prefixes)]
    done = [folder for folder in folders if folder.finished() and not folder.is_held("run")]
    unfinished = [folder.run_id for folder in folders if folder not in done]
    if prefixes and unfinished:
        raise UsageError(f"run {unfinished[0]} is not done: only the spools of done runs are compacted")
    with refusals():
        try:
            compacted = [compact(store, folder.run_id) for folder in done]
            ingest(store)
        except (CompactionError, CompactedError) as error:
            raise StudyError(str(error)) from error
    if as_json:
        print(json.dumps({"runs": [asdict(one) for one in compacted], "not_done": unfinished}, indent=2))
        return
    spools, still_open = sum(one.spools for one in compacted), sum(one.still_open for one in compacted)
    before, after = sum(one.bytes_before for one in compacted), sum(one.bytes_after for one in compacted)
    changed = sum(one.spools > 0 for one in compacted)
    console.print(
        f"{spools} spools of {changed} runs compacted: {human_bytes(before)} to {human_bytes(after)}. "
        f"{len(compacted) - changed} done runs had nothing to compact; {len(unfinished)} are not done.",
        highlight=False,
    )
    if still_open:
        console.print(f"{still_open} spools are still being written and stayed.", style="yellow")


def _named_folders(store: Path, prefixes: Sequence[str]) -> list[str]:
    """Run folders whose names begin with one of ``prefixes`` (all without any); raises UsageError."""
    names = sorted(path.name for path in (store / "runs").iterdir() if path.is_dir())
    if not prefixes:
        return names
    try:
        return list(dict.fromkeys(run_meant(prefix, names) for prefix in prefixes))
    except UnknownRunError as error:
        raise UsageError(str(error)) from error


def print_pruning(store: Path, only: Sequence[str], do_it: bool, as_json: bool, console: Console) -> None:
    """List what may go with its size; remove it if told to."""
    from flows.pruning import KINDS, find_waste, remove

    if not (store / "runs").is_dir():
        raise UsageError(f"no runs in {store}")
    for kind in only:
        if kind not in KINDS:
            raise UsageError(f"--only {kind!r}{nearest(kind, list(KINDS))}: it takes {', '.join(KINDS)}")
    waste = find_waste(store, _archived(store), only or list(KINDS))
    kept = [one for one in waste if not remove(store, one)] if do_it else []
    removed = [one for one in waste if one not in kept]
    if as_json:
        rows = [{**asdict(one), "removed": do_it and one not in kept} for one in waste]
        print(json.dumps({"removed": do_it, "bytes": sum(one.bytes for one in removed), "items": rows}, default=str))
        return
    table = Table("kind", Column("size", justify="right"), "what", "why it may go")
    for kind in KINDS:
        of_kind = [one for one in waste if one.kind == kind]
        for one in of_kind[:MOST_LISTED]:
            path = one.path.relative_to(store) if one.path.is_relative_to(store) else one.path
            table.add_row(kind, human_bytes(one.bytes), Text(str(path)), one.why)
        if rest := of_kind[MOST_LISTED:]:
            table.add_row(kind, human_bytes(sum(one.bytes for one in rest)), f"{len(rest)} more", rest[0].why)
    if waste:
        console.print(table)
    total = f"{len(removed)} things, {human_bytes(sum(one.bytes for one in removed))}"
    console.print(f"Removed {total}." if do_it else f"May go: {total}. Nothing was removed; --yes does it.")
    if kept:
        console.print(f"{len(kept)} things came into use meanwhile and stayed.", style="yellow")


def _archived(store: Path) -> list[str]:
    """Runs that are archived, by the results as they are now."""
    from evaluation.results.ingest import ingest
    from evaluation.results.snapshot import open_snapshot

    with refusals():
        ingest(store)
        with open_snapshot(store) as snapshot:
            rows = snapshot.execute("SELECT run_id FROM run_marks WHERE is_archived ORDER BY run_id").fetchall()
    return [row[0] for row in rows]


def print_export(
    store: Path, prefixes: Sequence[str], plan: str | None, to: Path, samples: bool, as_json: bool, console: Console
) -> None:
    """Write a bundle of the named runs, or of a plan's, with the untrained models that they are measured against."""
    from evaluation.results.bundle import BundleError
    from evaluation.results.bundle_export import export_bundle
    from evaluation.results.compacted import CompactedError
    from evaluation.results.ingest import ingest
    from evaluation.results.snapshot import open_snapshot

    if bool(prefixes) == (plan is not None):
        raise UsageError("name runs, or a plan with --plan: one of the two")
    with refusals():
        ingest(store)
        with open_snapshot(store) as snapshot:
            runs = _with_bases(snapshot, _chosen(snapshot, prefixes, plan))
            said = {run: _said(snapshot, run) for run in runs}
            provenance = _provenance(snapshot, runs)
            plans = [name for (name,) in snapshot.execute(_PLANS, [runs]).fetchall()] if plan is None else [plan]
        try:
            report = export_bundle(
                store,
                said,
                to,
                version=metadata.version("stillroom"),
                plans=plans,
                patches=[one["git_diff_file"] for one in provenance.values() if one.get("git_diff_file")],
                environment={
                    "provenance.json": json.dumps(provenance, indent=1, sort_keys=True),
                    "requirements.txt": installed_packages(),
                },
                samples=samples,
            )
        except BundleError as error:
            raise UsageError(str(error)) from error
        except CompactedError as error:
            raise StudyError(str(error)) from error
    if as_json:
        print(json.dumps(asdict(report), indent=2, default=str))
    else:
        console.print(
            f"{report.runs} runs, {report.files} files, {human_bytes(report.bytes)}: {report.path}\n"
            f"On another machine: stillroom import {report.path.name}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


_PLANS = "SELECT DISTINCT plan FROM plan_cells WHERE run_id IN (SELECT unnest(?)) ORDER BY plan"


def _chosen(snapshot: duckdb.DuckDBPyConnection, prefixes: Sequence[str], plan: str | None) -> list[str]:
    from evaluation.results.plans import find_plan
    from evaluation.results.records import tuning_plan
    from evaluation.results.selection import find_run

    if plan is None:
        return list(dict.fromkeys(find_run(snapshot, prefix) for prefix in prefixes))
    name, _ = find_plan(snapshot, plan)
    sql = "SELECT DISTINCT run_id FROM plan_cells WHERE plan IN (?, ?) ORDER BY run_id"
    return [run for (run,) in snapshot.execute(sql, [name, tuning_plan(name)]).fetchall()]


def _with_bases(snapshot: duckdb.DuckDBPyConnection, runs: list[str]) -> list[str]:
    sql = """
        SELECT DISTINCT base_run_id FROM latest_cells
        WHERE run_id IN (SELECT unnest(?)) AND base_run_id IN (SELECT run_id FROM latest_runs)
    """
    return sorted({*runs, *(base for (base,) in snapshot.execute(sql, [runs]).fetchall())})


def _said(snapshot: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    sql = "SELECT label, method, model, seed, status FROM run_labels WHERE run_id = ?"
    row = snapshot.execute(sql, [run]).fetchone()
    assert row is not None  # chosen from the same snapshot
    return dict(zip(("label", "method", "model", "seed", "status"), row, strict=True))


def _provenance(snapshot: duckdb.DuckDBPyConnection, runs: list[str]) -> dict[str, dict[str, Any]]:
    sql = "SELECT run_id, provenance FROM latest_runs WHERE run_id IN (SELECT unnest(?)) ORDER BY run_id"
    return {run: json.loads(text) for run, text in snapshot.execute(sql, [runs]).fetchall()}


def installed_packages() -> str:
    """Every package of this environment as a requirements file."""
    found = {d.metadata["Name"].lower(): f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()}
    return "".join(f"{line}\n" for _, line in sorted(found.items()))


def print_import(store: Path, bundle: Path, as_json: bool, console: Console) -> None:
    """Take a bundle in, bring the results up to date, and say what is new."""
    from evaluation.results.bundle import BundleError, open_bundle
    from evaluation.results.bundle_import import import_bundle
    from evaluation.results.ingest import ingest

    with refusals():
        try:
            with open_bundle(bundle) as (_, manifest):
                busy = [run for run in manifest.runs if _is_running(store / "runs" / run)]
                plans = manifest.plans
            if busy:
                raise UsageError(f"run {busy[0]} runs here now: import when it is done")
            report = import_bundle(store, bundle)
        except BundleError as error:
            raise UsageError(str(error)) from error
        ingested = ingest(store)
    if as_json:
        print(json.dumps({**asdict(report), "plans": plans, "lines": ingested.lines}, indent=2))
        return
    if report.files:
        console.print(
            f"{len(report.new_runs)} new runs of {len(report.runs)}, {report.files} files, "
            f"{human_bytes(report.bytes)}, {ingested.lines:,} facts.",
            highlight=False,
        )
    else:
        console.print(f"All {len(report.runs)} runs were here already: nothing changed.", highlight=False)
    for plan in plans:
        console.print(f"  stillroom compare {plan}", highlight=False, markup=False)


def _is_running(path: Path) -> bool:
    return path.is_dir() and RunFolder(path).is_held("run")
