"""Commands about single runs: tag, note, archive, reproduce, export-model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.app import Json, Store, app, console
from flows.errors import UsageError
from flows.settings import read_settings

_Flag = Annotated[bool, Parameter(negative=())]
_Several = Annotated[tuple[str, ...], Parameter(negative=())]


@app.command
def tag(*runs: str, add: _Several = (), remove: _Several = (), json: Json = False, store: Store = None) -> int:
    """Tag runs; without --add and --remove, show their tags. `compare --tag` filters by them.

    Parameters
    ----------
    runs
        Runs, by the beginning of their ids.
    add
        A tag to set (any number of times).
    remove
        A tag to take off (any number of times).
    """
    from flows.marking import mark_runs

    if "" in (*add, *remove) or set(add) & set(remove):
        raise UsageError("--add and --remove take different tags, none of them empty")
    marks = [*(("tag", text, True) for text in add), *(("tag", text, False) for text in remove)]
    mark_runs(read_settings(store).store, runs, marks, json, console)
    return 0


@app.command
def note(run: str, text: str | None = None, *, remove: _Flag = False, json: Json = False, store: Store = None) -> int:
    """Write a note on a run; without a text, show its notes.

    Parameters
    ----------
    run
        The beginning of the run's id.
    text
        The note.
    remove
        Take the note with this text back.
    """
    from flows.marking import mark_runs

    if text is not None and not text.strip():
        raise UsageError("the note is empty")
    marks = [("note", text, not remove)] if text is not None else []
    mark_runs(read_settings(store).store, [run], marks, json, console)
    return 0


@app.command
def archive(*runs: str, undo: _Flag = False, json: Json = False, store: Store = None) -> int:
    """Leave runs out of tables, which list them as archived. Nothing is deleted.

    Parameters
    ----------
    runs
        Runs, by the beginning of their ids.
    undo
        Take them back in.
    """
    from flows.marking import mark_runs

    mark_runs(read_settings(store).store, runs, [("archive", "", not undo)], json, console)
    return 0


@app.command
def reproduce(
    run: str,
    *,
    to: Path | None = None,
    dry_run: _Flag = False,
    json: Json = False,
    store: Store = None,
) -> int:
    """Restore a run's code, check model, data and environment, run it again apart, and compare every number.

    What cannot be restored is said before anything is started. Exit code 1 when a number differs.

    Parameters
    ----------
    run
        The beginning of the run's id.
    to
        Folder for the code and the new results; default: reproduced/RUN in the store.
    dry_run
        Only say what can be restored.
    """
    from flows.reproducing import reproduce_run

    return reproduce_run(read_settings(store), run, to, dry_run, json, console)


@app.command
def export_model(run: str, *, to: Path, update: int | None = None, json: Json = False, store: Store = None) -> int:
    """Write the trained model as a Hugging Face folder: merged weights, tokenizer, configuration, model card.

    Parameters
    ----------
    run
        The beginning of the run's id.
    to
        The folder to write; it must not be there yet.
    update
        The checkpoint after so many updates, if it was kept; default: the last.
    """
    from flows.exporting import print_export

    print_export(read_settings(store), run, to, update, json, console)
    return 0
