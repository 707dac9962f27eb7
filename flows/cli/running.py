"""Commands that train: demo, sweep, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.app import Store, app, console
from flows.errors import UsageError
from flows.settings import Settings, read_settings

if TYPE_CHECKING:
    from flows.plan_spec import Plan


@app.command
def demo(*, store: Store = None) -> int:
    """Run the study flows/plans/demo.yaml and print its table. Running it again does only what is missing."""
    return sweep("demo", store=store)


@app.command
def sweep(plan: str, *, store: Store = None, dry_run: bool = False) -> int:
    """Run what is missing of a plan, and print its table.

    Parameters
    ----------
    plan
        A plan file, or the name of one that ships (see `stillroom plans`).
    dry_run
        List the runs and what is already done; start nothing.
    """
    from flows.plan import load_plan

    return _sweep(load_plan(plan), read_settings(store), dry_run)


@app.command
def run(
    method: str,
    *,
    benchmark: str,
    model: str = "tiny-demo",
    preset: str | None = None,
    updates: int = 40,
    seeds: tuple[int, ...] = (0,),
    problems: int | None = 200,
    set: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    store: Store = None,
) -> int:
    """Train one method on one benchmark, outside any plan file.

    Parameters
    ----------
    method
        A method's key (see `stillroom methods`).
    benchmark
        Where training and test problems come from: a benchmark's name (see `stillroom benchmarks`).
    model
        A shipped base model, a local folder, or a hub id.
    preset
        Settings to start from (see `stillroom methods NAME`); default: the paper's, or "tiny" for a tiny model.
    updates
        How many updates.
    seeds
        One run each.
    problems
        Evaluate on the first so many test problems.
    set
        Change a value of the method: views.teacher.weights=ema (any number of times). The method without the
        changes is run beside it.
    """
    from flows.adhoc import adhoc_plan

    changes = [_assignment(text) for text in set]
    if len(dict(changes)) < len(changes):
        raise UsageError("--set names one path twice")
    plan = adhoc_plan(method, benchmark, model, preset, updates, seeds, problems, dict(changes))
    return _sweep(plan, read_settings(store), dry_run=False)


def _sweep(plan: Plan, settings: Settings, dry_run: bool) -> int:
    from flows.environment import prepare_environment
    from flows.report import print_dry_run, print_outcome

    prepare_environment(settings.store)
    if dry_run:
        from flows.prepare import prepare
        from flows.tuning import failed_before

        print_dry_run(prepare(plan, settings, gave_up=failed_before), console)
        return 0
    from flows.progress import watch_runs
    from flows.sweep import run_plan

    outcome = run_plan(
        plan,
        settings,
        notify=lambda line: console.print(line, style="dim", highlight=False, markup=False),
        watch=lambda runs: watch_runs(runs, console),
    )
    print_outcome(outcome, settings, console)
    return 1 if outcome.failures or outcome.stopped else 0


def _assignment(text: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UsageError(f"--set {text!r}: write PATH=VALUE, e.g. views.teacher.weights=ema")
    try:
        return path, YAML(typ="safe").load(value)
    except YAMLError as error:
        raise UsageError(f"--set {text!r}: {value!r} is not a YAML value") from error
