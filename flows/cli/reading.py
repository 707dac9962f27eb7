"""Commands that show what there is: methods, benchmarks, plans, status."""

from __future__ import annotations

from flows.cli.app import Json, Store, app, print_content
from flows.errors import UsageError
from flows.settings import read_settings


@app.command
def methods(name: str | None = None, *, json: Json = False, markdown: bool = False, docs: bool = False) -> int:
    """List the methods, or show one: equation, every field with its meaning, ablations, presets, open choices.

    Parameters
    ----------
    markdown
        Print the list as the table of the README, or the method as its section of docs/methods.md.
    docs
        Print docs/methods.md: all methods, and what their fields mean.
    """
    from evaluation.names import nearest
    from flows.catalogue import table_of
    from flows.method_docs import method_section, methods_document
    from flows.method_pages import describe_method
    from flows.method_table import method_rows, methods_markdown
    from training.methods import METHODS

    if name is not None and name not in METHODS:
        raise UsageError(f"unknown method {name!r}{nearest(name, sorted(METHODS))}")
    if docs:
        print(methods_document(), end="")
    elif markdown:
        print(methods_markdown() if name is None else method_section(METHODS[name]))
    elif name is None:
        print_content(method_rows() if json else table_of(method_rows()), json)
    else:
        print_content(METHODS[name].model_dump(mode="json") if json else describe_method(METHODS[name]), json)
    return 0


@app.command
def benchmarks(name: str | None = None, *, json: Json = False, docs: bool = False) -> int:
    """List the benchmarks and whether their data is here, or show one: prompt, grading, files, published numbers.

    Parameters
    ----------
    name
        A benchmark, or any family of reasoning-gym as rg_FAMILY.
    docs
        Print docs/benchmarks.md: all benchmarks.
    """
    from evaluation.benchmarks import BENCHMARKS
    from evaluation.benchmarks.finding import unknown
    from flows.benchmark_pages import benchmark_page, benchmarks_document, describe_benchmark
    from flows.catalogue import benchmark_rows, table_of

    root = read_settings().benchmarks
    if name is not None and name not in BENCHMARKS:
        raise UsageError(unknown(name))
    if docs:
        print(benchmarks_document(), end="")
    elif name is not None:
        benchmark = BENCHMARKS[name]
        print_content(benchmark_page(benchmark, root) if json else describe_benchmark(benchmark, root), json)
    else:
        rows = benchmark_rows(root)
        print_content(rows if json else table_of(rows), json)
    return 0


@app.command
def plans(*, json: Json = False) -> int:
    """List the plans that ship."""
    from flows.catalogue import plan_rows, table_of

    rows = plan_rows()
    print_content(rows if json else table_of(rows), json)
    return 0


@app.command
def status(plan: str | None = None, *, json: Json = False, store: Store = None) -> int:
    """What is done, running, failed or missing, from the runs' folders."""
    from flows.catalogue import table_of
    from flows.status import status_rows

    rows = status_rows(read_settings(store).store, plan)
    print_content(rows if json else table_of(rows), json)
    return 0
