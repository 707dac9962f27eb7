"""MBPP and MBPP+: short Python programs from one sentence (Austin et al. 2021, arXiv:2108.07732).

``mbpp`` takes the sanitized file (427 problems) with the paper's splits by task id: 11 to 510 test, 511 to 600
validation, 601 to 974 train; ids up to 10 are the paper's examples and in no split. The assertions are part of the
prompt, as in the paper, for they alone say the function's name. ``mbpp_plus`` (arXiv:2305.01210) calls the function on
EvalPlus's inputs and expects what EvalPlus's own solution returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.humaneval import CLOSED
from evaluation.benchmarks.plus import plus_tests
from evaluation.benchmarks.reading import field, find_file, load_file, text_field
from evaluation.grading.code import grade_code
from evaluation.grading.code_tests import grade_by_tests
from evaluation.problems import Message, Problem, Split

FILE = "mbpp_sanitized.json"
PLUS_FILE = "MbppPlus.jsonl.gz"
GET = "it is mbpp/sanitized-mbpp.json of google-research/google-research on GitHub"
PLUS_GET = "it is MbppPlus.jsonl.gz of the releases of evalplus/mbppplus_release on GitHub"
SPLITS: dict[Split, range] = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
INSTRUCTION = "Answer with the whole program in one code block. It must pass these tests:"


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems of a split, in the file's order."""

    def make(entry: dict[str, Any], place: str, number: int) -> Problem | None:
        task = field(entry, place, "task_id")
        if task not in SPLITS[split]:
            return None
        tests = field(entry, place, "test_list")
        imports = "\n".join(entry.get("test_imports") or [])
        solution = f"```python\n{text_field(entry, place, 'code')}\n```"
        asked = "\n".join([text_field(entry, place, "prompt", "text"), "", INSTRUCTION, "```python", *tests, "```"])
        return Problem(
            id=str(task),
            benchmark="mbpp",
            split=split,
            prompt=(Message(role="user", content=asked),),
            answer=solution,
            solution=solution,
            tests=tuple(f"{imports}\n{test}".strip() for test in tests),
        )

    return load_file(find_file("mbpp", FILE, root, GET), limit, make)


def load_plus(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems. Runs EvalPlus's solutions in the sandbox, so it needs one."""
    if split != "test":
        raise ValueError(CLOSED.format(name="mbpp_plus"))

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        program = text_field(entry, place, "canonical_solution")
        inputs = [(given, True) for given in field(entry, place, "base_input")]
        inputs += [(given, False) for given in entry.get("plus_input") or []]
        name = text_field(entry, place, "entry_point")
        asked = (
            f"{text_field(entry, place, 'prompt').strip()}\n\nName the function {name}. {INSTRUCTION.split('.')[0]}."
        )
        return Problem(
            id=text_field(entry, place, "task_id"),
            benchmark="mbpp_plus",
            split=split,
            prompt=(Message(role="user", content=asked),),
            answer=f"```python\n{program}\n```",
            solution=f"```python\n{program}\n```",
            tests=plus_tests(program, name, inputs, entry.get("atol") or 0.0, place),
        )

    return load_file(find_file("mbpp_plus", PLUS_FILE, root, PLUS_GET), limit, make)


MBPP = Benchmark(
    name="mbpp",
    version="1",
    title="MBPP, sanitized, Python programs",
    licence="CC-BY-4.0",
    source="https://github.com/google-research/google-research/tree/master/mbpp",
    splits=("train", "validation", "test"),
    max_new_tokens=1024,
    load=load,
    grade=grade_code,
    files=(FILE,),
    kind="code",
    get=GET,
    grading="the last Python code block passes the assertions in the sandbox; lenient: the text as a program",
)

MBPP_PLUS = Benchmark(
    name="mbpp_plus",
    version="1",
    title="MBPP+, Python programs with more tests",
    licence="Apache-2.0 (EvalPlus), CC-BY-4.0 (MBPP)",
    source="https://github.com/evalplus/evalplus",
    splits=("test",),
    max_new_tokens=1024,
    load=load_plus,
    grade=grade_by_tests,
    files=(PLUS_FILE,),
    kind="code",
    get=PLUS_GET,
    grading="the last Python code block returns what EvalPlus's solution returns, on all its inputs, in the sandbox",
)
