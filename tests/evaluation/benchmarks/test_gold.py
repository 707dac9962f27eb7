"""Every benchmark with real files passes all its own gold answers, and fails wrong ones."""

from __future__ import annotations

import json

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import MissingDataError
from evaluation.grading.batch import grade_many
from evaluation.grading.tool_calls import same
from evaluation.problems import Problem
from tests.evaluation.benchmarks.data import folder, needs_files

FILES = sorted(
    name
    for name, benchmark in BENCHMARKS.items()
    if benchmark.kind in ("math", "science", "tools") and name != "bfcl"  # neighbours share answers: test_bfcl.py
)

SOLUTIONS_WITHOUT_THEIR_ANSWER = {
    ("aime24", "60"): "ends in \\framebox{204}",
    ("aime24", "75"): "boxes \\textbf{(073)}, a name of a choice",
}
"""Worked solutions of the files that do not state the answer as the prompt asks; their gold answers pass."""

EQUIVALENT = {("math500", "test/algebra/1837.json"): "x=5 for 5"}
"""Where the answer of the next problem means the same, besides equal texts."""


def gold(problem: Problem) -> str:
    benchmark = BENCHMARKS[problem.benchmark]
    if benchmark.kind == "science":
        return f"<reasoning>\nBecause.\n</reasoning>\n<answer>\n{problem.answer}\n</answer>"
    if benchmark.kind == "tools":
        assert problem.solution is not None
        return f"Thought: I call it.\n{problem.solution}"
    return f"It follows.\n#### {problem.answer}" if problem.benchmark == "gsm8k" else f"So \\boxed{{{problem.answer}}}."


def problems_of(name: str, split: str) -> list[Problem]:
    try:
        return BENCHMARKS[name].load(split, root=folder())  # type: ignore[arg-type]
    except MissingDataError as error:
        pytest.skip(str(error))


@needs_files
@pytest.mark.parametrize(("name", "split"), [(name, split) for name in FILES for split in BENCHMARKS[name].splits])
def test_all_gold_answers_pass_and_the_next_problems_answer_fails(name: str, split: str) -> None:
    problems = problems_of(name, split)
    benchmark = BENCHMARKS[name]
    for problem, grade in zip(problems, grade_many(benchmark, [(p, gold(p)) for p in problems]), strict=True):
        assert (grade.verdict, grade.lenient, grade.well_formed) == ("pass", "pass", True), (problem.id, grade)
    others = [*problems[1:], problems[0]]
    wrong = grade_many(benchmark, [(p, gold(other)) for p, other in zip(problems, others, strict=True)])
    passed = {
        problem.id
        for problem, other, grade in zip(problems, others, wrong, strict=True)
        if grade.verdict != "fail" and problem.answer != other.answer and (name, problem.id) not in EQUIVALENT
    }
    assert passed == set()
    assert sum(grade.verdict == "fail" for grade in wrong) >= 0.6 * len(problems)


@needs_files
@pytest.mark.parametrize("name", ["math500", "aime24", "gsm8k"])
def test_worked_solutions_pass_but_for_the_listed_ones(name: str) -> None:
    problems = [problem for problem in problems_of(name, "test") if problem.solution]
    grades = grade_many(BENCHMARKS[name], [(problem, problem.solution or "") for problem in problems])
    failed = {(name, problem.id) for problem, grade in zip(problems, grades, strict=True) if grade.verdict != "pass"}
    assert len(problems) >= 30
    assert failed == {key for key in SOLUTIONS_WITHOUT_THEIR_ANSWER if key[0] == name}


@needs_files
def test_a_changed_argument_a_missing_and_an_extra_call_fail() -> None:
    benchmark, tried = BENCHMARKS["toolalpaca"], 0
    for problem in problems_of("toolalpaca", "test"):
        steps = json.loads(problem.answer)
        assert benchmark.grade(problem, gold(problem) + "\nAction: another\nAction Input: {}").verdict == "fail"
        assert benchmark.grade(problem, "\n".join(gold(problem).split("\n")[:-2])).verdict == "fail"
        arguments = json.loads(steps[0]["Action_Input"] or "{}")
        for key, value in arguments.items():
            changed = {**arguments, key: f"{value}?" if isinstance(value, str) else [value]}
            assert not same(arguments, changed)
            text = gold(problem).replace(json.dumps(arguments, ensure_ascii=False), json.dumps(changed), 1)
            assert text != gold(problem) and benchmark.grade(problem, text).verdict == "fail"
            tried += 1
    assert tried > 60
