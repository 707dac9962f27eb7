"""HumanEval and HumanEval+: 164 Python functions from their docstrings (Chen et al. 2021, arXiv:2107.03374).

``humaneval`` runs the authors' assertions, which are hidden; the answer may use what the prompt defines.
``humaneval_plus`` (Liu et al. 2023, arXiv:2305.01210) calls the function on EvalPlus's inputs; what must come out is
found by running EvalPlus's own solution in the sandbox once, and never enters the sandbox with an answer. Its file has
both kinds of inputs: those of HumanEval count as public.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, Score
from evaluation.benchmarks.plus import plus_benchmark
from evaluation.benchmarks.reading import find_file, load_file, refuse_training, text_field
from evaluation.grading.assert_tests import AssertTest, dump_assert_tests
from evaluation.grading.code import grade_code
from evaluation.problems import Message, Problem, Split

FILE = "humaneval.jsonl.gz"
GET = "it is data/HumanEval.jsonl.gz of openai/human-eval on GitHub"
INSTRUCTION = "Complete this Python function. Answer with the whole program in one code block:\n\n"


def _program(entry: dict[str, Any], place: str) -> str:
    return text_field(entry, place, "prompt") + text_field(entry, place, "canonical_solution")


def _asked(entry: dict[str, Any], place: str) -> str:
    return f"{INSTRUCTION}```python\n{text_field(entry, place, 'prompt').strip()}\n```"


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems; each is tested by the authors' ``check`` of its function."""
    refuse_training("humaneval", split)

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        name = text_field(entry, place, "entry_point")
        test = AssertTest(
            source=f"{text_field(entry, place, 'test')}\ncheck({name})",
            setup=text_field(entry, place, "prompt"),
            entry=name,
            public=False,
        )
        solution = f"```python\n{_program(entry, place)}\n```"
        return Problem(
            id=text_field(entry, place, "task_id"),
            benchmark="humaneval",
            split=split,
            prompt=(Message(role="user", content=_asked(entry, place)),),
            answer=solution,
            solution=solution,
            tests=dump_assert_tests([test]),
        )

    return load_file(find_file("humaneval", FILE, root, GET), limit, make)


HUMANEVAL = Benchmark(
    name="humaneval",
    version="1",
    title="HumanEval, Python functions",
    licence="MIT",
    source="https://github.com/openai/human-eval",
    splits=("test",),
    max_new_tokens=1024,
    load=load,
    grade=grade_code,
    files=(FILE,),
    kind="code",
    get=GET,
    grading="the last Python code block passes the authors' assertions in the sandbox; lenient: the text as a program",
    published=(Score("Codex-12B", "pass@1", 28.8, "2107.03374"), Score("Codex-12B", "pass@100", 72.3, "2107.03374")),
)

HUMANEVAL_PLUS = plus_benchmark(
    "humaneval_plus",
    "HumanEval+, Python functions with more tests",
    file="HumanEvalPlus.jsonl.gz",
    licence="Apache-2.0 (EvalPlus), MIT (HumanEval)",
    get="it is HumanEvalPlus.jsonl.gz of the releases of evalplus/humanevalplus_release on GitHub",
    asked=_asked,
    program=_program,
)
