"""EvalPlus's inputs as tests: what must come out is what its own solution returns, run in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaluation.grading.program_runs import returned
from evaluation.grading.program_tests import CallTest, dump_tests
from evaluation.grading.sandbox import Limits, find_sandbox

LIMITS = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=2 << 30, output_bytes=64 << 20)
"""For a reference solution on all its inputs."""


def plus_tests(
    program: str, function: str, inputs: Sequence[tuple[Any, bool]], tolerance: float, place: str
) -> tuple[str, ...]:
    """One test for each (arguments, whether it is public).

    Raises ValueError naming ``place`` where the solution fails.
    """
    arguments = [repr(given) for given, _ in inputs]
    try:
        values = returned(program, function, arguments, find_sandbox(), LIMITS)
    except ValueError as error:
        raise ValueError(f"{place}: the file's own solution fails ({error}): get the file again") from error
    return dump_tests(
        [
            CallTest(
                function=function,
                arguments=text,
                expected=value,
                tolerance=tolerance,
                sequences_are_equal=False,
                public=public,
            )
            for text, value, (_, public) in zip(arguments, values, inputs, strict=True)
        ]
    )


def from_json(text: str) -> str:
    """A JSON value as a Python literal."""
    return repr(json.loads(text))
