"""EvalPlus's test sets: what must come out is what its own solution returns on its inputs, run in the sandbox.

Inputs of the original benchmark count as public, those that EvalPlus added are hidden. EvalPlus's special rules for
some tasks (lists that stand for tuples or sets, answers equal as sets, a root judged by its polynomial) are not
applied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.reading import field, find_file, load_file, refuse_training, text_field
from evaluation.grading.code_tests import grade_by_tests
from evaluation.grading.program_runs import returned
from evaluation.grading.program_tests import CallTest, dump_tests
from evaluation.grading.sandbox import Limits, find_sandbox
from evaluation.problems import Message, Problem, Split

LIMITS = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=2 << 30, output_bytes=64 << 20)
"""For a reference solution on all its inputs."""


def plus_benchmark(
    name: str,
    title: str,
    *,
    file: str,
    licence: str,
    get: str,
    asked: Callable[[dict[str, Any], str], str],
    program: Callable[[dict[str, Any], str], str],
) -> Benchmark:
    """``asked`` gives the user turn of a record (record, place), ``program`` its whole reference program."""

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        refuse_training(name, split)

        def make(entry: dict[str, Any], place: str, number: int) -> Problem:
            solution = f"```python\n{program(entry, place)}\n```"
            return Problem(
                id=text_field(entry, place, "task_id"),
                benchmark=name,
                split=split,
                prompt=(Message(role="user", content=asked(entry, place)),),
                answer=solution,
                solution=solution,
                tests=_tests(entry, place, program(entry, place)),
            )

        return load_file(find_file(name, file, root, get), limit, make)

    return Benchmark(
        name=name,
        version="1",
        title=title,
        licence=licence,
        source="https://github.com/evalplus/evalplus",
        splits=("test",),
        max_new_tokens=1024,
        load=load,
        grade=grade_by_tests,
        files=(file,),
        kind="code",
        get=get,
        grading="the last Python code block returns what EvalPlus's solution returns on its inputs, in the sandbox",
    )


def _tests(entry: dict[str, Any], place: str, program: str) -> tuple[str, ...]:
    """One test an input. Raises ValueError naming ``place`` where the file's own solution fails."""
    inputs = [(repr(given), True) for given in field(entry, place, "base_input")]
    inputs += [(repr(given), False) for given in entry.get("plus_input") or []]
    function = text_field(entry, place, "entry_point")
    try:
        values = returned(program, function, [arguments for arguments, _ in inputs], find_sandbox(), LIMITS)
    except ValueError as error:
        raise ValueError(f"{place}: the file's own solution fails ({error}): get the file again") from error
    return dump_tests(
        [
            CallTest(
                function=function,
                arguments=arguments,
                expected=value,
                tolerance=entry.get("atol") or 0.0,
                public=public,
            )
            for (arguments, public), value in zip(inputs, values, strict=True)
        ]
    )
