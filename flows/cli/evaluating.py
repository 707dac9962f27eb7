"""Commands that measure: evaluate a model, grade stored answers again."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from flows.cli.app import Json, Store, app, console
from flows.errors import UsageError
from flows.settings import read_settings


@app.command
def evaluate(
    model: str | None = None,
    *,
    benchmark: Annotated[tuple[str, ...], Parameter(negative=())],
    run: str | None = None,
    update: int | None = None,
    n: int | None = None,
    split: str = "test",
    problems: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_new_tokens: int | None = None,
    system_prompt: str | None = None,
    thinking: bool | None = None,
    precision: str | None = None,
    seed: int | None = None,
    json: Json = False,
    store: Store = None,
) -> int:
    """Evaluate a model as it is: accuracy with its interval, pass@k, the vote, format and length.

    Answers are recorded as they come; the same command goes on where it was stopped. A study that starts from the model
    and asks the same shares the result.

    Parameters
    ----------
    model
        A shipped base model, a local folder with a Hugging Face model, or a hub id.
    benchmark
        Any number of times; see `stillroom benchmarks`.
    run
        Instead of a model: a run of the store, by the beginning of its id; what is evaluated is its last checkpoint.
    update
        Of the run, the checkpoint after this update.
    n
        Answers to each problem; default: the benchmark's protocol, else 1.
    problems
        The first so many problems; default: all.
    temperature
        Default: 0 for one answer, else the benchmark's protocol, else 1.
    max_new_tokens
        Default: the benchmark's.
    thinking
        The chat template's thinking switch; default: the template's own.
    precision
        float32 (default) or bfloat16_autocast.
    seed
        Draws answers anew; default: the one that studies evaluate their untrained model under, and share.
    """
    from flows.environment import prepare_environment
    from flows.evaluating import Asked, checkpoint_model, evaluation_plan, print_summaries
    from flows.progress import watch_runs
    from flows.sweep import run_plan

    settings = read_settings(store)
    prepare_environment(settings.store)
    if n is not None and n < 1:
        raise UsageError(f"--n must be 1 or more, not {n}")
    if (model is None) == (run is None) or (run is None and update is not None):
        raise UsageError("name a model, or a run with --run and maybe --update: one of the two")
    if model is None:
        assert run is not None
        folder, trained_under = checkpoint_model(settings, run, update)
        model, system_prompt = str(folder), trained_under if system_prompt is None else system_prompt
    asked = Asked(n, split, problems, temperature, top_p, max_new_tokens, system_prompt, thinking, precision, seed)
    plan = evaluation_plan(model, benchmark, asked)
    told = Console(stderr=True) if json else console
    outcome = run_plan(
        plan,
        settings,
        notify=lambda line: told.print(line, style="dim", highlight=False, markup=False),
        watch=lambda runs: watch_runs(runs, told),
    )
    for run_id, error in outcome.failures.items():
        print(f"stillroom: {run_id}: {error}", file=sys.stderr)
    if outcome.stopped:
        told.print("Stopped on request. The same command goes on from here.", style="yellow")
    if outcome.failures or outcome.stopped:
        return 1
    assert outcome.prepared.base_run_id is not None
    print_summaries(settings.store, outcome.prepared.base_run_id, json, console)
    return 0


@app.command
def regrade(
    *runs: str,
    benchmark: str,
    plan: str | None = None,
    dry_run: bool = False,
    json: Json = False,
    store: Store = None,
) -> int:
    """Grade stored answers again with the grader as it is now. Nothing is generated, and old grades are kept.

    Parameters
    ----------
    runs
        Runs, by the beginning of their ids; default: all of the store, or of the plan.
    benchmark
        The benchmark whose answers are graded.
    plan
        Only the runs of this plan.
    dry_run
        Say what would change; write nothing.
    """
    from flows.regrading import print_regrading

    print_regrading(read_settings(store), runs, plan, benchmark, dry_run, json, console)
    return 0
