"""Commands about the store itself: compact, prune, export, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.app import Json, Store, app, console
from flows.settings import read_settings

_Flag = Annotated[bool, Parameter(negative=())]
_Several = Annotated[tuple[str, ...], Parameter(negative=())]


@app.command
def compact(*runs: str, json: Json = False, store: Store = None) -> int:
    """Put the spools of done runs into one Parquet file a run, a tenth of the size. No fact changes.

    Parameters
    ----------
    runs
        Runs, by the beginning of their ids; default: every run that is done.
    """
    from flows.storing import print_compaction

    print_compaction(read_settings(store).store, runs, json, console)
    return 0


@app.command
def prune(*, only: _Several = (), yes: _Flag = False, json: Json = False, store: Store = None) -> int:
    """List what of the store may go, and with --yes remove it. Facts and what a run needs to go on never go.

    Parameters
    ----------
    only
        Only this kind (any number of times): checkpoints, samples (texts of archived runs), snapshots, prefect, logs,
        leftovers.
    yes
        Remove what is listed.
    """
    from flows.storing import print_pruning

    print_pruning(read_settings(store).store, only, yes, json, console)
    return 0


@app.command
def export(
    *runs: str,
    to: Path,
    plan: str | None = None,
    samples: Annotated[bool, Parameter(negative="--no-samples")] = True,
    json: Json = False,
    store: Store = None,
) -> int:
    """Write runs into a bundle that another machine imports: facts, texts, settings, environment and checksums.

    Parameters
    ----------
    runs
        Runs, by the beginning of their ids. The untrained model that a run starts from goes along.
    to
        A new zip file (NAME.zip) or a new folder.
    plan
        All runs of this plan, with the trials of its tuning.
    samples
        With prompts, answers and tokens; without, only verdicts and metrics.
    """
    from flows.storing import print_export

    print_export(read_settings(store).store, runs, plan, to.expanduser().absolute(), samples, json, console)
    return 0


@app.command(name="import")
def import_(bundle: Path, *, json: Json = False, store: Store = None) -> int:
    """Take a bundle's runs into the store. Everything is checked first; importing twice changes nothing.

    Parameters
    ----------
    bundle
        A zip file or folder that `stillroom export` wrote.
    """
    from flows.storing import print_import

    print_import(read_settings(store).store, bundle.expanduser().absolute(), json, console)
    return 0
