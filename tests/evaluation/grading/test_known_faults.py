"""Faults of verifiers and rewards that users of other systems reported, one test or more for each kind."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import evaluate
from evaluation.grading.batch import grade_many
from evaluation.grading.math import _pool, equal_answers, grade_math
from evaluation.grading.sandbox import Limits, find_sandbox
from evaluation.problems import Grade, Message, Problem, Split
from evaluation.recording import close_evaluation, record_answers
from evaluation.results.compare import compare
from evaluation.results.ingest import ingest
from evaluation.results.snapshot import open_snapshot
from evaluation.results.spool import Spool
from evaluation.results.tables import footnotes
from evaluation.samplers.base import SamplingParams
from evaluation.samplers.scripted import ScriptedSampler
from tests.evaluation.results.factory import Study, base_run_id, write_base


def _problem(answer: str, number: int = 0, benchmark: str = "b") -> Problem:
    message = Message(role="user", content=f"{number}?")
    return Problem(id=f"p{number}", benchmark=benchmark, split="test", prompt=(message,), answer=answer)


def _benchmark(grade: Callable[[Problem, str], Grade]) -> Benchmark:
    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        return []

    return Benchmark("numbers", "1", "Numbers", "none", "here", ("test",), 8, load, grade)


# --- a verifier whose time limit works in the main thread only; a broad except then makes every score 0 ------------


def test_the_verifier_works_outside_the_main_thread() -> None:
    grades: list[Grade] = []
    texts = ["so \\boxed{0.75}", "so \\boxed{0.7}", "so \\boxed{\\frac{6}{8}}"]

    def work() -> None:
        grades.extend(grade_many(BENCHMARKS["math500"], [(_problem("\\frac{3}{4}"), text) for text in texts]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [grade.score for grade in grades] == [1.0, 0.0, 1.0]


def test_a_killed_grading_process_is_no_wrong_answer() -> None:
    assert equal_answers("\\frac12", "0.5").equal
    child = _pool().places.get()
    assert child is not None
    os.kill(child.process.pid, signal.SIGKILL)
    _pool().places.put(child)
    grades = grade_many(BENCHMARKS["math500"], [(_problem("\\frac{1}{7}", n), "\\boxed{1/7}") for n in range(20)])
    assert Counter(grade.verdict for grade in grades) == {"pass": 20}


# --- false matches and misses that depend on the order of the arguments: the regression set is in test_math --------


def test_gold_comes_first() -> None:
    assert equal_answers("x > 2", "(2, \\infty)").equal is True
    assert equal_answers("(2, \\infty)", "x > 2").equal is False


# --- separators and trailing zeros turn a number into another ------------------------------------------------------


@pytest.mark.parametrize(("written", "number"), [("9{,}500", "9500"), ("8,000", "8000"), ("8.00", "8")])
def test_separators_and_zeros(written: str, number: str) -> None:
    others = {"9500", "8000", "8", "9.5", "800", "9", "500"} - {number}
    assert equal_answers(number, written).equal is True and equal_answers(written, number).equal is True
    assert [other for other in others if equal_answers(other, written).equal is not False] == []
    gsm8k = BENCHMARKS["gsm8k"].grade
    assert gsm8k(_problem(number), f"#### {written}").verdict == "pass"
    assert all(gsm8k(_problem(other), f"#### {written}").verdict == "fail" for other in others)


# --- a strict format scores the base model too low -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "answer", "text"),
    [
        ("math500", "\\frac{3}{4}", "So the probability is $\\frac{3}{4}$."),
        ("gsm8k", "72", "48 + 24 = 72"),
        ("sciknoweval_biology", "B", "The answer is (B)."),
    ],
)
def test_a_right_answer_outside_the_format_is_strictly_0_leniently_1_format_0(
    benchmark: str, answer: str, text: str
) -> None:
    grade = BENCHMARKS[benchmark].grade(_problem(answer), text)
    assert (grade.verdict, grade.score, grade.lenient, grade.well_formed) == ("fail", 0.0, "pass", False)


# --- infrastructure failure counted as a wrong answer --------------------------------------------------------------

PROBLEMS = [_problem(str(n), n, "numbers") for n in range(100)]


def _scores(tmp_path: Path, broken: Callable[[int], bool]) -> tuple[float, float, int, list[str]]:
    """Accuracy, rate of unscored answers and their number in the store, and the notes under the comparison.

    Each problem has two answers, right ones where its number is even.
    """

    def grade(problem: Problem, text: str) -> Grade:
        if broken(int(problem.answer)):
            raise ConnectionError("the grader's machine is gone")
        right = text == problem.answer
        return Grade(verdict="pass" if right else "fail", score=float(right), grader="number", version="1")

    benchmark = dataclasses.replace(_benchmark(grade), name="numbers")
    sampler = ScriptedSampler(lambda request: [request.prompt_ids[0] + request.prompt_ids[0] % 2, 99])

    def decode(ids: Sequence[int]) -> str:
        return str(ids[0] - 100)

    answers = evaluate(
        sampler,
        lambda problem: (100 + int(problem.answer),),
        decode,
        benchmark,
        PROBLEMS,
        samples=2,
        sampling=SamplingParams(max_new_tokens=2),
        seed=0,
    )
    study = Study(cells=(), splits=(), benchmark="numbers")
    write_base(tmp_path, study)
    run = base_run_id(study)
    with Spool(tmp_path / "runs" / run, role="evaluator", attempt=1) as spool:
        record_answers(spool, tmp_path / "runs" / run, run, 0, benchmark, "test", PROBLEMS, answers, part=0)
        close_evaluation(spool, run, 0, benchmark, "test", len(PROBLEMS), 2, {}, 1.0)
    ingest(tmp_path)
    with open_snapshot(tmp_path) as con:
        row = con.execute("SELECT accuracy, unscored_rate, n_unscored FROM scores").fetchone()
        notes = footnotes(compare(con))
    assert row is not None
    return *row, notes


def test_graders_that_raise_for_a_tenth_change_no_accuracy_and_flag_the_run(tmp_path: Path) -> None:
    """Ten problems of a hundred, half of them answered rightly: what is left is half right too."""
    accuracy, rate, unscored, notes = _scores(tmp_path / "whole", lambda number: False)
    assert (accuracy, rate, unscored) == (0.5, 0.0, 0)
    assert not any("could not be scored" in note for note in notes)

    accuracy, rate, unscored, notes = _scores(tmp_path / "broken", lambda number: number < 10)
    assert (accuracy, rate, unscored) == (0.5, 0.1, 20)
    assert any("more than 2% of the answers could not be scored: Base" in note for note in notes)

    _, rate, _, notes = _scores(tmp_path / "little", lambda number: number < 2)
    assert rate == 0.02 and not any("could not be scored" in note for note in notes)


def test_a_broken_grader_never_becomes_a_score() -> None:
    def grade(problem: Problem, text: str) -> Grade:
        raise OSError("no disk")

    grades = grade_many(_benchmark(grade), [(problem, problem.answer) for problem in PROBLEMS])
    assert {(grade.verdict, grade.score, grade.error) for grade in grades} == {("not_scored", None, "OSError: no disk")}


def test_an_answer_cannot_leave_the_count_by_stopping_the_grader() -> None:
    """The reverse fault: what only this answer causes is no failure of the infrastructure."""
    grade = grade_math(_problem("x+1"), "\\boxed{9^{9^{9^{9}}}}", cpu_seconds=0.5)
    assert (grade.verdict, grade.score) == ("fail", 0.0) and grade.error is not None


# --- time-outs that are not killed; a negative reward taken for an error -------------------------------------------


def test_a_grandchild_is_gone_after_the_limit(tmp_path: Path) -> None:
    sandbox = find_sandbox(allow_unsafe=True)
    program = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(86123)\n"
        "    os._exit(0)\n"
        "time.sleep(86123)\n"
    )
    outcome = sandbox.run(program, limits=Limits(cpu_seconds=1, wall_seconds=1))
    assert outcome.timed_out
    assert [pid for pid in _processes() if "86123" in _command(pid)] == []


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace") if pid != os.getpid() else ""
    except OSError:
        return ""


def test_a_score_of_minus_one_is_a_score() -> None:
    def grade(problem: Problem, text: str) -> Grade:
        return Grade(verdict="fail", score=-1.0, grader="penalty", version="1")

    (found,) = grade_many(_benchmark(grade), [(PROBLEMS[0], "x")])
    assert (found.verdict, found.score, found.error) == ("fail", -1.0, None)
