"""Every benchmark with real files passes all its own gold answers, and fails wrong ones."""

from __future__ import annotations

import json

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import MissingDataError
from evaluation.benchmarks.gym_families import FAMILIES
from evaluation.grading.batch import grade_many
from evaluation.grading.tool_calls import same
from evaluation.problems import Problem
from tests.evaluation.benchmarks.data import folder, needs_files

FILES = sorted(name for name, benchmark in BENCHMARKS.items() if benchmark.kind in ("math", "science", "tools"))

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


@pytest.mark.parametrize("family", FAMILIES)
def test_reasoning_gym_passes_gold_and_nothing_else(family: str) -> None:
    benchmark = BENCHMARKS[f"rg_{family}"]
    problems = benchmark.load("test", limit=6)
    for problem in problems:
        grade = benchmark.grade(problem, f"I think.\n<answer>{problem.answer}</answer>")
        assert (grade.verdict, grade.score, grade.lenient) == ("pass", 1.0, "pass")
        bare = benchmark.grade(problem, problem.answer)
        assert (bare.verdict, bare.well_formed, bare.lenient) == ("fail", False, "pass")
        for junk in (f"{problem.answer} or 7 perhaps", "I do not know", "", "zzz", "None", "{}", "0.0.0"):
            wrong = benchmark.grade(problem, f"<answer>{junk}</answer>")
            assert wrong.verdict == "fail" and wrong.score is not None and wrong.score < 1, junk


@pytest.mark.parametrize("family", ["gcd", "syllogism", "letter_counting"])
def test_reasoning_gym_never_asks_one_question_in_two_splits(family: str) -> None:
    benchmark = BENCHMARKS[f"rg_{family}"]
    questions = [
        [" ".join(problem.prompt[0].content.casefold().split()) for problem in benchmark.load(split, limit=limit)]
        for split, limit in (("train", 400), ("validation", 40), ("test", 80))
    ]
    assert [len(set(split)) for split in questions] == [400, 40, 80]
    assert len(set().union(*questions)) == 520
    assert benchmark.load("train", limit=5) == benchmark.load("train", limit=400)[:5]


def test_reasoning_gym_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.benchmarks.gym_families.DRAWS_PER_PROBLEM", 1)
    with pytest.raises(ValueError, match=r"rg_gcd has only \d+ different validation questions: ask for fewer than 50"):
        BENCHMARKS["rg_gcd"].load("validation", limit=50)
