"""Commands that ask the results: compare, diff, query."""

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
def compare(
    *plans: str,
    runs: _Several = (),
    where: _Several = (),
    tag: _Several = (),
    benchmark: str | None = None,
    split: str = "test",
    metric: str = "accuracy",
    baseline: str | None = None,
    budget_by: str | None = None,
    budget: float | None = None,
    tuning: _Flag = False,
    cost: _Flag = False,
    format: Annotated[str, Parameter(help="table, markdown, csv, json or latex (needs booktabs).")] = "table",
    bold_best: _Flag = False,
    json: Json = False,
    store: Store = None,
) -> int:
    """Compare the rows of a plan: mean accuracy over seeds with its interval, cost, paired difference and p.

    Parameters
    ----------
    plans
        Names of plans, side by side; default: the one run last.
    runs
        Compare these runs instead, by the beginning of their ids (any number of times).
    where
        Only runs with PATH=VALUE (any number of times), e.g. views.teacher.weights=ema, budget.updates>=100, seed!=3.
    tag
        Only runs with this tag (any number of times).
    benchmark
        Default: all of them.
    split
        Split the scores are taken from.
    metric
        accuracy, score, lenient, format, pass@K, pass^K or maj@K.
    baseline
        Label of the row that differences refer to; default: the untrained model.
    budget_by
        Compare at equal updates, rollout_tokens, total_tokens, flop or seconds.
    budget
        How much of it; default: what the cheapest row spent.
    tuning
        Show the trials of the plan's tuning instead: their scores and which values were chosen.
    cost
        Show what the plan took in all instead: tokens, FLOP and seconds, of its runs and of its trials apart.
    bold_best
        In LaTeX, set the highest mean of each benchmark in bold.
    """
    from flows.comparing import print_comparison, print_costs, print_trials

    folder, form = read_settings(store).store, "json" if json else format
    if tuning and cost:
        raise UsageError("--tuning and --cost are two tables: ask for one at a time")
    if not tuning and not cost:
        print_comparison(
            folder,
            form,
            console,
            bold_best=bold_best,
            plans=plans,
            runs=runs,
            where=where,
            tags=tag,
            benchmark=benchmark,
            split=split,
            metric=metric,
            baseline=baseline,
            budget_by=budget_by,
            budget=budget,
        )
        return 0
    if benchmark is not None or baseline is not None or runs or where or tag or budget_by or len(plans) > 1:
        raise UsageError("--tuning and --cost show one plan whole: leave all other choices out")
    (print_trials if tuning else print_costs)(folder, plans[0] if plans else None, form, console)
    return 0


@app.command
def power(
    plan: str | None = None,
    *,
    delta: float = 0.02,
    seeds: int | None = None,
    problems: int | None = None,
    baseline: str | None = None,
    differ: float = 0.2,
    power: float = 0.8,
    json: Json = False,
    store: Store = None,
) -> int:
    """Tell how many problems or seeds a comparison needs to see a difference.

    Parameters
    ----------
    plan
        Take the spread of this plan's paired differences; without it, of two models that differ on a share of problems.
    delta
        The difference to see: 0.02 is two points.
    seeds
        Default: those of the plan, else 1.
    problems
        Default: those of the plan, else 500.
    baseline
        Label of the row that differences refer to; default: the untrained model.
    differ
        Without a plan: the share of problems that one model answers right and the other wrong.
    power
        Probability of seeing it.
    """
    from flows.power import print_power

    folder = read_settings(store).store
    if seeds == 0 or problems == 0:
        raise UsageError("--seeds and --problems count from 1")
    print_power(folder, plan, baseline, differ, seeds, problems, delta, power, json, console)
    return 0


@app.command
def diff(first: str, second: str, *, json: Json = False, store: Store = None) -> int:
    """Show in which settings two runs differ, and apart from that where and with what they ran.

    Parameters
    ----------
    first
        The beginning of a run's id (see `stillroom status`).
    second
        Another.
    """
    from flows.comparing import print_differences

    print_differences(read_settings(store).store, first, second, json, console)
    return 0


@app.command
def query(
    sql: str,
    *,
    json: Json = False,
    csv: _Flag = False,
    parquet: Path | None = None,
    max_rows: int | None = None,
    timeout: float = 30.0,
    store: Store = None,
) -> int:
    """Ask one SELECT of the published results, read-only. Tables and views are described in docs/results.md.

    Parameters
    ----------
    sql
        One SELECT statement, e.g. "select * from final_scores".
    csv
        Print CSV.
    parquet
        Write the rows to this file, with the types they have in the database.
    max_rows
        Stop after so many rows; default: 1000, for a file 10 million.
    timeout
        Seconds after which the query is interrupted.
    """
    from flows.asking import print_query, write_query

    folder = read_settings(store).store
    if parquet is not None:
        if json or csv:
            raise UsageError("--parquet writes a file: leave --json and --csv out")
        write_query(folder, sql, parquet, max_rows, timeout, console)
    else:
        print_query(folder, sql, max_rows, timeout, "json" if json else "csv" if csv else "table", console)
    return 0
