"""GSM8K: loading, the hold-out, and that every gold solution grades as right."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import MissingDataError
from evaluation.benchmarks.gsm8k import GSM8K, clean_solution, grade, load

QUESTIONS = [
    ("How many clips?", "48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72 in all.\n#### 72", "72"),
    ("How much money?", "It is $<<1000*2.5=2500>>2,500.\n#### 2,500", "2500"),
    ("How cold is it?", "2 - 5 = <<2-5=-3>>-3\n#### -3", "-3"),
]


def _write(folder: Path, name: str, records: list[tuple[str, str, str]]) -> None:
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer, _ in records]
    (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    train = [(f"Question number {n}?", f"{n} + 1 = <<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}", "") for n in range(400)]
    _write(tmp_path, "gsm8k_train.jsonl", train)
    _write(tmp_path, "gsm8k_test.jsonl", QUESTIONS)
    return tmp_path


def test_problems_carry_prompt_clean_solution_and_plain_answer(root: Path) -> None:
    problems = load("test", root=root)
    assert [problem.answer for problem in problems] == [answer for _, _, answer in QUESTIONS]
    first = problems[0]
    assert first.id == "test-0001"
    assert first.solution == "48/2 = 24 in May.\n48+24 = 72 in all.\n#### 72"
    assert first.prompt[0].content.startswith("How many clips?\n\n") and "####" in first.prompt[0].content
    assert "24" not in first.prompt[0].content, "the solution is privileged"


def test_gold_solutions_grade_as_right_and_other_answers_do_not(root: Path) -> None:
    problems = load("test", root=root)
    for problem in problems:
        assert problem.solution is not None
        right = grade(problem, problem.solution)
        assert (right.verdict, right.lenient, right.well_formed) == ("pass", "pass", True)
    wrong = [grade(problem, other.solution or "") for problem in problems for other in problems if other is not problem]
    assert {g.verdict for g in wrong} == {"fail"}


def test_validation_is_the_documented_hold_out_of_the_training_file(root: Path) -> None:
    train, validation = load("train", root=root), load("validation", root=root)
    expected = [
        n
        for n in range(400)
        if int.from_bytes(hashlib.sha256(f"question number {n}?".encode()).digest()[:8], "big") % 20 == 0
    ]
    assert [problem.id for problem in validation] == [f"train-{n + 1:04d}" for n in expected]
    assert 5 <= len(expected) <= 40
    assert len(train) + len(validation) == 400
    assert {problem.id for problem in train}.isdisjoint(problem.id for problem in validation)
    assert all(problem.split == "validation" for problem in validation)


def test_limit_keeps_the_first_problems(root: Path) -> None:
    assert load("train", limit=7, root=root) == load("train", root=root)[:7]
    assert load("validation", limit=3, root=root) == load("validation", root=root)[:3]


def test_missing_data_names_file_setting_and_source(tmp_path: Path) -> None:
    for root in (None, tmp_path):
        with pytest.raises(MissingDataError, match=r"gsm8k_test\.jsonl.*grade-school-math.*STILLROOM_BENCHMARKS"):
            load("test", root=root)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "a record is a JSON object, not list"),
        ('{"question": "q"}', "no field answer"),
        ('{"question": 3, "answer": "#### 1"}', "question is not a text: 3"),
        ('{"question": "q", "answer": "1"}', "does not end with '#### <number>'"),
        ('{"question": "q", "answer": "#### many"}', "does not end with '#### <number>'"),
    ],
)
def test_bad_records_are_refused_with_file_and_line(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "gsm8k_test.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n' + line + "\n")
    with pytest.raises(ValueError, match=f"gsm8k_test.jsonl:2: .*{reason}"):
        load("test", root=tmp_path)


def test_calculator_marks_are_removed() -> None:
    assert clean_solution("a = $<<100/2=50>>50, b = <<3=3>>3\n#### 3 ") == "a = $50, b = 3\n#### 3"


def test_it_is_listed() -> None:
    assert BENCHMARKS["gsm8k"] is GSM8K and set(GSM8K.splits) == {"train", "validation", "test"}


DATA = os.environ.get("STILLROOM_BENCHMARKS")


@pytest.mark.skipif(DATA is None, reason="set STILLROOM_BENCHMARKS to the folder of benchmark files")
def test_the_real_files() -> None:
    """Sizes of the published files; every gold solution is graded as right."""
    root = Path(str(DATA))
    splits = {split: load(split, root=root) for split in GSM8K.splits}
    assert len(splits["test"]) == 1319
    assert len(splits["train"]) + len(splits["validation"]) == 7473
    assert 300 <= len(splits["validation"]) <= 450
    for problems in splits.values():
        for problem in problems:
            solution = problem.solution or ""
            assert "<<" not in solution
            grades = grade(problem, solution), grade(problem, f"The answer is {problem.answer}.")
            assert [(g.verdict, g.lenient) for g in grades] == [("pass", "pass")] * 2, problem.id
