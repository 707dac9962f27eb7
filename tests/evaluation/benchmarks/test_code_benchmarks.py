"""Code benchmarks: every reference program passes, empty ones fail, and files of every form are read."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.livecodebench import unpacked
from evaluation.grading.batch import grade_many
from evaluation.grading.sandbox import SandboxUnavailableError, find_sandbox
from evaluation.problems import Problem
from tests.evaluation.benchmarks.data import folder, needs_files


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    try:
        find_sandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


def _returns_none(problem: Problem) -> str:
    assert problem.solution is not None
    names = re.findall(r"^def (\w+)\(", problem.solution, re.MULTILINE)
    return "```python\n" + "\n".join(f"def {name}(*a, **k):\n    return None" for name in names) + "\n```"


def _check_gold(problems: list[Problem]) -> None:
    benchmark = BENCHMARKS[problems[0].benchmark]
    right = grade_many(benchmark, [(problem, problem.solution or "") for problem in problems])
    assert {problem.id: g.feedback for problem, g in zip(problems, right, strict=True) if g.verdict != "pass"} == {}
    wrong = grade_many(benchmark, [(problem, _returns_none(problem)) for problem in problems])
    assert {problem.id for problem, grade in zip(problems, wrong, strict=True) if grade.verdict != "fail"} == set()


@needs_files
@pytest.mark.parametrize(("name", "split"), [("humaneval", "test"), ("mbpp", "train"), ("mbpp", "validation")])
def test_some_reference_programs_pass_and_empty_ones_fail(name: str, split: str) -> None:
    _check_gold(BENCHMARKS[name].load(split, root=folder())[::20])  # type: ignore[arg-type]


@needs_files
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split", "count"),
    [("humaneval", "test", 164), ("mbpp", "train", 120), ("mbpp", "validation", 43), ("mbpp", "test", 257)],
)
def test_all_reference_programs_pass_and_empty_ones_fail(name: str, split: str, count: int) -> None:
    problems = BENCHMARKS[name].load(split, root=folder())  # type: ignore[arg-type]
    assert len(problems) == count
    _check_gold(problems)


@needs_files
def test_prompts_hold_no_solution_and_mbpps_splits_are_the_papers() -> None:
    problems = {split: BENCHMARKS["mbpp"].load(split, root=folder()) for split in BENCHMARKS["mbpp"].splits}
    assert min(int(p.id) for p in problems["test"]) >= 11 and max(int(p.id) for p in problems["test"]) <= 510
    assert not {p.id for p in problems["train"]} & {p.id for p in problems["test"]}
    for problem in [*problems["test"], *BENCHMARKS["humaneval"].load("test", root=folder())]:
        assert problem.solution is not None
        body = problem.solution.split("\n")[-2].strip()
        assert len(body) < 12 or body not in problem.prompt[0].content


# --- EvalPlus's form ---------------------------------------------------------------------------------------------

PLUS = {
    "task_id": "HumanEval/0",
    "prompt": 'def half(xs):\n    """Halves."""\n',
    "canonical_solution": "    return [x / 2 for x in xs]\n",
    "entry_point": "half",
    "base_input": [[[1, 2]], [[]]],
    "plus_input": [[[10**6, 3]]],
    "atol": 0,
}


def _plus(tmp_path: Path, **changes: Any) -> Problem:
    (tmp_path / "HumanEvalPlus.jsonl.gz").write_bytes(gzip.compress(json.dumps({**PLUS, **changes}).encode()))
    (problem,) = BENCHMARKS["humaneval_plus"].load("test", root=tmp_path)
    return problem


@pytest.mark.parametrize(
    ("body", "verdict", "feedback"),
    [
        ("return [x / 2 for x in xs]", "pass", None),
        ("return [x * 0.5 + 1e-9 for x in xs]", "pass", None),
        (
            "return [x / 2 for x in xs] if max(xs, default=0) < 9 else []",
            "fail",
            "Wrong answer on a hidden test. The 2",
        ),
        (
            "return tuple(x / 2 for x in xs)",
            "fail",
            "Wrong answer on example 1 of 2.\nInput: [[1, 2]]\nOutput: (0.5, 1.0)",
        ),
        ("return xs[0]", "fail", "Expected: [0.5, 1.0]"),
        ("return xs[7]", "fail", "Runtime error on example 1 of 2.\nInput: [[1, 2]]\nIndexError"),
        ("xs.append(1)\n    return [x / 2 for x in xs[:-1]]", "pass", None),
        ("return [x / 2 for x in xs] if len(xs) else {}['1000000']", "fail", "Runtime error on example 2"),
        ("return [x / 2 for x in xs] if sum(xs) < 9 else {}[str(xs[0])]", "fail", "Runtime error on a hidden test."),
    ],
)
def test_plus_compares_with_the_reference_and_hides_hidden_tests(
    tmp_path: Path, body: str, verdict: str, feedback: str | None
) -> None:
    problem = _plus(tmp_path)
    grade = BENCHMARKS["humaneval_plus"].grade(problem, f"```python\ndef half(xs):\n    {body}\n```")
    assert grade.verdict == verdict
    assert feedback is None if grade.feedback is None else feedback is not None and feedback in grade.feedback
    assert "1000000" not in (grade.feedback or "") or "example" in (grade.feedback or "")


def test_a_reference_that_fails_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"HumanEvalPlus.jsonl.gz:1: the file's own solution fails \(call 1: Zero"):
        _plus(tmp_path, canonical_solution="    return 1 / 0\n")


def test_mbpp_plus_is_read_the_same_way(tmp_path: Path) -> None:
    entry = {
        "task_id": "Mbpp/2",
        "prompt": '"""\nWrite a function to square.\nassert square(2) == 4\n"""\n',
        "canonical_solution": "def square(x):\n    return x * x\n",
        "entry_point": "square",
        "base_input": [[2]],
        "plus_input": [[-3]],
        "atol": 0,
    }
    (tmp_path / "MbppPlus.jsonl.gz").write_bytes(gzip.compress(json.dumps(entry).encode()))
    (problem,) = BENCHMARKS["mbpp_plus"].load("test", root=tmp_path)
    grade = BENCHMARKS["mbpp_plus"].grade
    assert problem.solution is not None and grade(problem, problem.solution).verdict == "pass"
    assert grade(problem, "```python\ndef square(x):\n    return 2 * x\n```").verdict == "fail"
    assert "square" in problem.prompt[0].content


# --- LiveCodeBench -----------------------------------------------------------------------------------------------


def _packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def _lcb(tmp_path: Path, **changes: Any) -> Problem:
    entry = {
        "question_id": "abc1_a",
        "contest_id": "abc1",
        "question_content": "Print the sum.",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": _packed([{"input": "987654321 1\n", "output": "987654322\n", "testtype": "stdin"}]),
        "metadata": "{}",
        **changes,
    }
    (tmp_path / "livecodebench_v6.jsonl").write_text(json.dumps(entry) + "\n")
    (problem,) = BENCHMARKS["livecodebench_v6"].load("test", root=tmp_path)
    return problem


@pytest.mark.parametrize(
    ("program", "verdict", "feedback"),
    [
        ("print(sum(map(int, input().split())))", "pass", None),
        ("print(float(sum(map(int, input().split()))), '\\n')", "pass", None),
        ("print(3)", "fail", "Wrong answer on a hidden test. The 1 examples pass."),
        ("print(4)", "fail", "Wrong answer on example 1 of 1.\nInput: 1 2\nOutput: 4\nExpected: 3"),
        ("pass", "fail", "Output: nothing"),
        ("print(3); exit(1)", "fail", "Runtime error on example 1 of 1"),
        (
            "import sys\nn = sys.stdin.read()\nprint(3 if n[0] == '1' else int('x' + n))",
            "fail",
            "Runtime error on a hidden",
        ),
        ("print(3)\nwhile True: pass", "fail", "exceeded on example 1"),
    ],
)
def test_standard_input_and_output(tmp_path: Path, program: str, verdict: str, feedback: str | None) -> None:
    from evaluation.grading.code_tests import grade_by_tests
    from evaluation.grading.sandbox import Limits

    problem = _lcb(tmp_path)
    grade = grade_by_tests(problem, f"```python\n{program}\n```", limits=Limits(cpu_seconds=1))
    assert (grade.verdict, grade.error) == (verdict, None)
    assert feedback is None if grade.feedback is None else feedback is not None and feedback in grade.feedback
    assert "98765432" not in (grade.feedback or "")


def test_methods_of_a_class_get_their_arguments_as_json(tmp_path: Path) -> None:
    case = {"input": '[1, 2]\n"ab"\ntrue', "output": "[1, null]", "testtype": "functional"}
    problem = _lcb(
        tmp_path,
        starter_code="class Solution:\n    def f(self, xs, s, flag):\n        ",
        public_test_cases=json.dumps([case]),
        private_test_cases="[]",
        metadata=json.dumps({"func_name": "f"}),
    )
    grade = BENCHMARKS["livecodebench_v6"].grade
    body = "return (xs[0], None) if flag is True and s == 'ab' else 0"
    right = f"class Solution:\n    def f(self, xs, s, flag):\n        {body}"
    assert grade(problem, f"```python\n{right}\n```").verdict == "pass"
    assert grade(problem, f"```python\n{right.replace('None', '0')}\n```").verdict == "fail"
    typed = right.replace("xs, s, flag)", "xs: List[int], s: str, flag: Optional[bool])")
    assert grade(problem, f"```python\n{typed}\n```").verdict == "pass"
    future = f"from __future__ import annotations\n{right}"
    assert grade(problem, f"```python\n{future}\n```").verdict == "pass"
    assert "class Solution" in problem.prompt[0].content and problem.cluster == "abc1"


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    "payload",
    [_Evil(), ["x", _Evil()], 7],
    ids=["a call", "a call inside", "a number"],
)
def test_packed_tests_can_only_be_text(payload: object) -> None:
    text = base64.b64encode(zlib.compress(pickle.dumps(payload))).decode()
    with pytest.raises(ValueError, match=r"file:3: private_test_cases cannot be read"):
        unpacked(text, "file:3")


def test_a_record_without_readable_tests_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"livecodebench_v6.jsonl:1: the tests cannot be read"):
        _lcb(tmp_path, public_test_cases='[{"input": "1"}]')
    with pytest.raises(ValueError, match=r"livecodebench_v6.jsonl:1: private_test_cases cannot be read"):
        _lcb(tmp_path, private_test_cases="no base64 !")
