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
from evaluation.benchmarks.plus import plus_benchmark
from evaluation.benchmarks.reading import field, find_file, load_file, text_field
from evaluation.grading.code import grade_code
from evaluation.problems import Message, Problem, Split

FILE = "mbpp_sanitized.json"
GET = "it is mbpp/sanitized-mbpp.json of google-research/google-research on GitHub"
SPLITS: dict[Split, range] = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
WHOLE_PROGRAM = "Answer with the whole program in one code block."
INSTRUCTION = f"{WHOLE_PROGRAM} It must pass these tests:"


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


def _asked_plus(entry: dict[str, Any], place: str) -> str:
    name = text_field(entry, place, "entry_point")
    return f"{text_field(entry, place, 'prompt').strip()}\n\nName the function {name}. {WHOLE_PROGRAM}"


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

MBPP_PLUS = plus_benchmark(
    "mbpp_plus",
    "MBPP+, Python programs with more tests",
    file="MbppPlus.jsonl.gz",
    licence="Apache-2.0 (EvalPlus), CC-BY-4.0 (MBPP)",
    get="it is MbppPlus.jsonl.gz of the releases of evalplus/mbppplus_release on GitHub",
    asked=_asked_plus,
    program=lambda entry, place: text_field(entry, place, "canonical_solution"),
)
