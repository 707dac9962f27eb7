"""LiveCodeBench, code generation, releases 5 and 6 (Jain et al. 2024, arXiv:2403.07974).

The release's JSON lines, concatenated in their order into ``livecodebench_v5.jsonl`` (all lines up to that release) or
``livecodebench_v6.jsonl``. Public tests are the examples of the question, private ones are hidden. Private tests come
packed as a pickled text: it is read by an unpickler that knows no class and no function, so the file can only be text.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, SamplingProtocol, Score
from evaluation.benchmarks.reading import field, find_file, load_file, refuse_training, text_field
from evaluation.grading.code_tests import grade_by_tests
from evaluation.grading.program_tests import CallTest, StdinTest, dump_tests
from evaluation.problems import Grade, Message, Problem, Split

GET = "it is made of test.jsonl, test2.jsonl, … of the hub's data set livecodebench/code_generation_lite, in that order"
PROGRAM = "Write a Python program that reads from standard input and prints the answer."
FUNCTION = "Complete this Python code, keeping its names:"
CLOSING = "Answer with the whole program in one code block."
PRELUDE = """from bisect import *
from collections import *
from copy import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from random import *
from statistics import *
from string import *
from typing import *
from builtins import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re
import statistics, string, sys, time
"""
"""What the release's own harness imports before an answer: sites that the questions come from do so, too."""
LONGEST_UNPACKED = 1 << 30
"""Bytes of one problem's tests; the largest of the releases are a few hundred MiB."""


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the tests hold {module}.{name} and not only text")


def unpacked(text: str, place: str) -> list[dict[str, Any]]:
    """Private tests: JSON, or base64 of zlib of a pickled JSON text. Raises ValueError naming ``place``."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        inflater = zlib.decompressobj()
        packed = inflater.decompress(base64.b64decode(text.encode(), validate=True), LONGEST_UNPACKED)
        if inflater.unconsumed_tail:
            raise ValueError("larger than 1 GiB")
        return json.loads(_TextOnly(io.BytesIO(packed)).load())
    except (ValueError, zlib.error, pickle.UnpicklingError, EOFError, TypeError) as error:
        raise ValueError(f"{place}: private_test_cases cannot be read ({error})") from error


def _literal(text: str) -> str:
    """A JSON value as a Python literal."""
    return repr(json.loads(text))


def _tests(entry: dict[str, Any], place: str) -> tuple[str, ...]:
    cases = [(case, True) for case in json.loads(field(entry, place, "public_test_cases"))]
    cases += [(case, False) for case in unpacked(entry.get("private_test_cases") or "[]", place)]
    metadata = json.loads(entry.get("metadata") or "{}")
    tests: list[CallTest | StdinTest] = []
    for case, public in cases:
        if case["testtype"] == "stdin":
            tests.append(StdinTest(given=case["input"], expected=case["output"], public=public))
        else:
            arguments = ", ".join(_literal(line) for line in case["input"].split("\n") if line.strip())
            function = f"Solution().{metadata['func_name']}"
            expected = _literal(case["output"])
            tests.append(
                CallTest(
                    function=function,
                    arguments=f"[{arguments}]",
                    expected=expected,
                    sequences_are_equal=True,
                    public=public,
                )
            )
    return dump_tests(tests)


def _benchmark(release: int, published: tuple[Score, ...] = ()) -> Benchmark:
    name = f"livecodebench_v{release}"
    file = f"{name}.jsonl"

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        refuse_training(name, split)

        def make(entry: dict[str, Any], place: str, number: int) -> Problem:
            starter = entry.get("starter_code") or ""
            asked = f"{FUNCTION}\n```python\n{starter.strip()}\n```" if starter.strip() else PROGRAM
            content = f"{text_field(entry, place, 'question_content').strip()}\n\n{asked} {CLOSING}"
            try:
                tests = _tests(entry, place)
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(f"{place}: the tests cannot be read ({type(error).__name__}: {error})") from error
            return Problem(
                id=str(field(entry, place, "question_id")),
                benchmark=name,
                split=split,
                prompt=(Message(role="user", content=content),),
                answer="",
                tests=tests,
                cluster=str(entry["contest_id"]) if entry.get("contest_id") else None,
            )

        return load_file(find_file(name, file, root, GET), limit, make)

    def grade(problem: Problem, text: str) -> Grade:
        return grade_by_tests(problem, text, prelude=PRELUDE)

    return Benchmark(
        name=name,
        version="1",
        title=f"LiveCodeBench, release {release}",
        licence="CC (as stated by the data set)",
        source="https://livecodebench.github.io",
        splits=("test",),
        max_new_tokens=16384,
        load=load,
        grade=grade,
        files=(file,),
        kind="code",
        get=GET,
        grading="the last Python code block passes every public and hidden test in the sandbox; outputs by value",
        protocol=SamplingProtocol(samples=4, temperature=0.6, top_p=0.95, source="2601.20802"),
        published=published,
    )


LIVECODEBENCH_V5 = _benchmark(5)
LIVECODEBENCH_V6 = _benchmark(
    6,
    (
        Score("Qwen3-8B", "accuracy, LCBv6", 27.9, "2601.20802"),
        Score("Qwen3-8B + GRPO", "accuracy, LCBv6", 41.2, "2601.20802"),
        Score("Qwen3-8B + SDPO", "accuracy, LCBv6", 48.8, "2601.20802"),
    ),
)
