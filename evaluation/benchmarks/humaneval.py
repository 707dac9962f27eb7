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
from evaluation.benchmarks.plus import plus_tests
from evaluation.benchmarks.reading import field, find_file, load_file, text_field
from evaluation.grading.assert_tests import AssertTest, dump_assert_tests
from evaluation.grading.code import grade_code
from evaluation.grading.code_tests import grade_by_tests
from evaluation.problems import Message, Problem, Split

FILE = "humaneval.jsonl.gz"
PLUS_FILE = "HumanEvalPlus.jsonl.gz"
GET = "it is data/HumanEval.jsonl.gz of openai/human-eval on GitHub"
PLUS_GET = "it is HumanEvalPlus.jsonl.gz of the releases of evalplus/humanevalplus_release on GitHub"
INSTRUCTION = "Complete this Python function. Answer with the whole program in one code block:\n\n"
CLOSED = "{name} has a test split only: it is made to measure with, not to train on"


def _solution(entry: dict[str, Any], place: str) -> str:
    prompt = text_field(entry, place, "prompt")
    return f"```python\n{prompt}{text_field(entry, place, 'canonical_solution')}\n```"


def _messages(entry: dict[str, Any], place: str) -> tuple[Message, ...]:
    prompt = text_field(entry, place, "prompt").strip()
    return (Message(role="user", content=f"{INSTRUCTION}```python\n{prompt}\n```"),)


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems; each is tested by the authors' ``check`` of its function."""
    if split != "test":
        raise ValueError(CLOSED.format(name="humaneval"))

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        name = text_field(entry, place, "entry_point")
        test = AssertTest(
            source=f"{text_field(entry, place, 'test')}\ncheck({name})",
            setup=text_field(entry, place, "prompt"),
            entry=name,
            public=False,
        )
        solution = _solution(entry, place)
        return Problem(
            id=text_field(entry, place, "task_id"),
            benchmark="humaneval",
            split=split,
            prompt=_messages(entry, place),
            answer=solution,
            solution=solution,
            tests=dump_assert_tests([test]),
        )

    return load_file(find_file("humaneval", FILE, root, GET), limit, make)


def load_plus(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems. Runs EvalPlus's solutions in the sandbox, so it needs one."""
    if split != "test":
        raise ValueError(CLOSED.format(name="humaneval_plus"))

    def make(entry: dict[str, Any], place: str, number: int) -> Problem:
        solution = _solution(entry, place)
        inputs = [(given, True) for given in field(entry, place, "base_input")]
        inputs += [(given, False) for given in entry.get("plus_input") or []]
        program = text_field(entry, place, "prompt") + text_field(entry, place, "canonical_solution")
        return Problem(
            id=text_field(entry, place, "task_id"),
            benchmark="humaneval_plus",
            split=split,
            prompt=_messages(entry, place),
            answer=solution,
            solution=solution,
            tests=plus_tests(program, text_field(entry, place, "entry_point"), inputs, entry.get("atol") or 0.0, place),
        )

    return load_file(find_file("humaneval_plus", PLUS_FILE, root, PLUS_GET), limit, make)


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

HUMANEVAL_PLUS = Benchmark(
    name="humaneval_plus",
    version="1",
    title="HumanEval+, Python functions with more tests",
    licence="Apache-2.0 (EvalPlus), MIT (HumanEval)",
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
