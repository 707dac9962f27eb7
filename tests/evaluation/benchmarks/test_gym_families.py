"""reasoning-gym: gold passes and nothing else does, questions stay in one split, what a model wrote is never run."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.gym_families import _value
from evaluation.benchmarks.gym_table import FAMILIES, NOT_OFFERED
from evaluation.overlap import check_overlap, normal_form, text_of
from evaluation.problems import Problem

LISTED = [name for name, family in FAMILIES.items() if family.listed]
OTHERS = [name for name, family in FAMILIES.items() if not family.listed]
GARBAGE = ("I do not know", "", "zzz", "None", "{}", "0.0.0", "9" * 3000, "[[", "x" * 30_000)
CODE = "__import__('os').system('touch {file}')"
FEWER = {"caesar_cipher": (2000, 400, 400), "prime_factorization": (568, 191, 216), "tower_of_hanoi": (52, 20, 17)}
"""Questions of train, validation and test; of the last two families, all there are."""
SLOW_TO_MAKE = ("sokoban", "futoshiki", "knight_swap", "intermediate_integration", "zebra_puzzles")


def tag(answer: str) -> str:
    return f"I think.\n<answer>{answer}</answer>"


def check(family: str, items: int) -> None:
    """Gold passes, garbage and gold with anything around it fail."""
    benchmark = BENCHMARKS[f"rg_{family}"]
    for problem in benchmark.load("test", limit=items):
        grade = benchmark.grade(problem, tag(problem.answer))
        assert (grade.verdict, grade.score, grade.lenient) == ("pass", 1.0, "pass"), (problem.answer, grade)
        around = [f"{problem.answer} or 7 perhaps", f"perhaps {problem.answer}", f"{problem.answer}\nzzz"]
        for junk in [*around, *(text for text in GARBAGE if _value(text) != _value(problem.answer))]:
            wrong = benchmark.grade(problem, tag(junk))
            assert wrong.verdict == "fail" and wrong.score is not None and wrong.score < 1, (junk, wrong)


@pytest.mark.parametrize("family", LISTED)
def test_a_listed_family_passes_gold_and_nothing_else(family: str) -> None:
    check(family, 3)


@pytest.mark.slow
@pytest.mark.parametrize("family", OTHERS)
def test_every_other_family_passes_gold_and_nothing_else(family: str) -> None:
    check(family, 1 if family in SLOW_TO_MAKE else 4)


@pytest.mark.parametrize("family", ["gcd", "letter_counting"])
def test_no_training_question_is_in_another_split_or_nearly(family: str) -> None:
    benchmark = BENCHMARKS[f"rg_{family}"]
    splits = {
        split: benchmark.load(split, limit=limit)
        for split, limit in (("train", 300), ("validation", 100), ("test", 100))
    }
    forms = [[normal_form(text_of(problem)) for problem in problems] for problems in splits.values()]
    assert len({form for split in forms for form in split}) == 500
    assert check_overlap(splits["train"], [*splits["test"], *splits["validation"]]) == []
    assert benchmark.load("train", limit=5) == splits["train"][:5]


@pytest.mark.drill
@pytest.mark.parametrize("family", [family for family in LISTED if family not in ("countdown", "number_sequence")])
def test_the_splits_share_nothing_at_full_size(family: str) -> None:
    benchmark = BENCHMARKS[f"rg_{family}"]
    sizes = dict(zip(("train", "validation", "test"), FEWER.get(family, (2000, 500, 500)), strict=True))
    splits = {split: benchmark.load(split, limit=limit) for split, limit in sizes.items()}  # type: ignore[arg-type]
    forms = [normal_form(text_of(problem)) for problems in splits.values() for problem in problems]
    assert len(set(forms)) == sum(sizes.values())
    for held_out, limit in (("test", 500), ("test", 300), ("validation", 500), ("validation", 200)):
        assert check_overlap(splits["train"], splits[held_out][:limit]) == [], (held_out, limit)


@pytest.mark.parametrize("family", [*FAMILIES])
def test_no_scorer_is_shown_code(family: str) -> None:
    shape = FAMILIES[family].shape
    for text in ("__import__('os')", "open('x')", "x.args", "().__class__", "exec(1)", "eval(x)", "[].append(1)"):
        assert shape is None or re.fullmatch(shape, text) is None, text


@pytest.mark.parametrize("family", ["countdown", "simple_integration", "string_insertion", "spiral_matrix"])
def test_code_in_an_answer_is_not_run(family: str, tmp_path: Path) -> None:
    benchmark = BENCHMARKS[f"rg_{family}"]
    problem = benchmark.load("test", limit=1)[0]
    for code in (CODE, f"[{CODE}]", f"({CODE})", f"{problem.answer} + {CODE}"):
        grade = benchmark.grade(problem, tag(code.format(file=tmp_path / "run")))
        assert grade.verdict == "fail"
    assert not (tmp_path / "run").exists()


def test_powers_of_powers_are_no_answer_and_a_scorer_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.benchmarks.gym_families.CPU_SECONDS", 2.0)
    benchmark = BENCHMARKS["rg_simple_integration"]
    problem = benchmark.load("test", limit=1)[0]
    assert benchmark.grade(problem, tag("9**9**9**9")).verdict == "fail"
    endless = benchmark.grade(problem, tag("9**(9**(9**9))"))
    assert endless.verdict == "not_scored" and endless.score is None and "processor time" in (endless.error or "")
    assert benchmark.grade(problem, tag(problem.answer)).verdict == "pass"


@pytest.mark.parametrize(
    ("family", "gold", "same"),
    [
        ("gcd", "4", ["4.0", " 4 ", "4.00"]),
        ("coin_flip", "0.375", ["3/8", "0.3750"]),
        ("list_functions", "[1, 2]", ["[1,2]", "[ 1, 2 ]"]),
        ("number_filtering", "['-79', '-23']", ["[-79, -23]", "['-79','-23']"]),
        ("syllogism", "Yes", ["yes", "'Yes'"]),
    ],
)
def test_one_answer_may_be_written_in_several_ways(family: str, gold: str, same: list[str]) -> None:
    assert FAMILIES[family].shape is None
    assert all(_value(text) == _value(gold) for text in same)
    assert all(_value(text) != _value(gold) for text in ("5", "3/7", "[2, 1]", "['-23']", "No", f"{gold} or 5"))


def test_other_right_answers_pass_and_other_sums_do_not() -> None:
    benchmark = BENCHMARKS["rg_prime_factorization"]
    problem = next(p for p in benchmark.load("test", limit=50) if "×" in p.answer and len(set(p.answer.split())) > 2)
    turned = " × ".join(reversed(problem.answer.split(" × ")))
    assert turned != problem.answer and benchmark.grade(problem, tag(turned)).verdict == "pass"
    assert benchmark.grade(problem, tag(f"1 × {problem.answer}")).verdict == "fail"
    knights = BENCHMARKS["rg_knights_knaves"]
    problem = knights.load("test", limit=1)[0]
    plain = re.sub(r"\ban\b", "a", problem.answer).rstrip(".")
    assert knights.grade(problem, tag(plain)).verdict == "pass"
    first = problem.answer.split(",")[0]
    assert (
        knights.grade(problem, tag(f"{problem.answer.rstrip('.')}, {first.replace(' is ', ' is not ')}")).verdict
        == "fail"
    )


def test_a_question_that_the_library_no_longer_asks_is_not_scored() -> None:
    benchmark = BENCHMARKS["rg_gcd"]
    first, second = benchmark.load("test", limit=2)
    moved: Problem = first.model_copy(update={"id": second.id, "answer": second.answer})
    grade = benchmark.grade(moved, tag(second.answer))
    assert grade.verdict == "not_scored" and "asks another question" in (grade.error or "")


def test_loading_leaves_the_processs_random_states_alone() -> None:
    before = random.getstate(), str(np.random.get_state())
    BENCHMARKS["rg_pool_matrix"].load("test", limit=2)
    assert (random.getstate(), str(np.random.get_state())) == before


def test_every_family_of_the_library_is_offered_or_the_reason_is_given() -> None:
    program = "from reasoning_gym.factory import DATASETS; print(*DATASETS)"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", program]
    names = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert sorted([*FAMILIES, *NOT_OFFERED]) == sorted(names)
    assert all(BENCHMARKS[f"rg_{name}"].listed == family.listed for name, family in FAMILIES.items())


def test_names_that_are_no_benchmark() -> None:
    from evaluation.benchmarks.finding import unknown

    assert unknown("rg_puzzle24") == f"benchmark 'rg_puzzle24' is not offered: {NOT_OFFERED['puzzle24']}"
    assert unknown("gsm8") == "unknown benchmark 'gsm8'; did you mean 'gsm8k'?"
    assert "valid: addition, aime24" in unknown("0000") and "rg_sokoban" not in unknown("0000")


def test_few_questions_are_said_to_be_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.benchmarks.gym_families.DRAWS_PER_PROBLEM", 1)
    with pytest.raises(ValueError, match=r"rg_gcd has only \d+ different validation questions: ask for fewer than 50"):
        BENCHMARKS["rg_gcd"].load("validation", limit=50)
