"""The math grader: a regression set of verdicts, threads, time-outs, and what is never a wrong answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from evaluation.grading.math import Equality, equal_answers, grade_math
from evaluation.problems import Message, Problem

# (gold, answer, equal?) as mathematics has it, whatever the grader's history.
VERDICTS: list[tuple[str, str, bool]] = [
    # numbers: separators, trailing zeros, signs, currency, spacing
    ("9500", "9{,}500", True),
    ("9500", "9,500", True),
    ("9,500", "9500", True),
    ("9500", "9\\,500", True),
    ("9500", "9 500", True),
    ("8000", "8,000", True),
    ("8", "8,000", False),
    ("8", "8.00", True),
    ("8.000", "8,000", False),
    ("8.00", "8", True),
    ("1000", "1.000", False),
    ("1,000", "1", False),
    ("1,234,567", "1234567", True),
    ("1234567", "1,234567", False),
    ("2,3", "2.3", False),
    ("2.3", "2,3", False),
    ("12", "12,0", False),
    ("6", "6.", True),
    ("0.5", ".5", True),
    ("7", "007", True),
    ("-5", "- 5", True),
    ("-5", "\u22125", True),
    ("5", "-5", False),
    ("0", "-0", True),
    ("32348", "\\$32,348", True),
    ("\\$32{,}348", "32348", True),
    ("100", "1000", False),
    ("3", "3.0000001", False),
    ("0.1", "0.10", True),
    # fractions, mixed numbers, percent, ratios
    ("1/2", "0.5", True),
    ("\\frac{1}{2}", "0.5", True),
    ("\\frac12", "1/2", True),
    ("\\frac{2}{4}", "\\frac{1}{2}", True),
    ("\\dfrac{3}{7}", "\\tfrac37", True),
    ("\\frac{1}{2}", "\\frac{1}{3}", False),
    ("\\frac{1}{2}", "\\frac{2}{1}", False),
    ("1/3", "0.333", False),
    ("1\\frac{2}{3}", "5/3", True),
    ("-\\frac{1}{2}", "\\frac{-1}{2}", True),
    ("50\\%", "0.5", True),
    ("50", "50\\%", True),
    ("3:4", "3/4", True),
    # roots, powers, constants, algebra
    ("\\sqrt{8}", "2\\sqrt{2}", True),
    ("\\sqrt{2}", "\\sqrt{3}", False),
    ("10^{3}", "1000", True),
    ("2^{10}", "1024", True),
    ("\\pi", "3.14", False),
    ("2\\pi", "\\pi \\cdot 2", True),
    ("x^2+2x+1", "(x+1)^2", True),
    ("x^2-1", "(x-1)(x+1)", True),
    ("x^2+1", "x^2-1", False),
    ("2x+3", "3+2x", True),
    ("\\frac{x}{2}", "0.5x", True),
    ("\\infty", "-\\infty", False),
    ("90^\\circ", "90", True),
    ("4210_5", "4210_{5}", True),
    # units and equations
    ("5", "5\\text{ cm}", True),
    ("5 \\text{ cm}", "5", True),
    ("12", "12 \\text{ apples}", True),
    ("5", "x=5", True),
    ("x=5", "5", True),
    ("5", "x=6", False),
    # tuples, sets, intervals
    ("(1,2)", "(1, 2)", True),
    ("(1,2)", "(2,1)", False),
    ("(1,2)", "[1,2]", False),
    ("[1,2)", "[1,2)", True),
    ("\\{1,2\\}", "\\{2,1\\}", True),
    ("1,2", "2,1", True),
    ("1,2,3", "1,2", False),
    ("1 \\pm \\sqrt{2}", "1+\\sqrt{2}, 1-\\sqrt{2}", True),
    ("(-\\infty,3]", "(-\\infty, 3]", True),
    ("(-\\infty,3]", "(-\\infty, 3)", False),
    ("\\left(3,\\frac{\\pi}{2}\\right)", "(3, \\pi/2)", True),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", True),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix} 2 \\\\ 1 \\end{pmatrix}", False),
    # the order of the arguments matters: an inequality may be answered where it was asked for, not the reverse
    ("x \\le 3", "(-\\infty,3]", True),
    ("(-\\infty,3]", "x \\le 3", False),
    # words and choices
    ("\\text{Evelyn}", "Evelyn", True),
    ("\\text{Evelyn}", "\\text{evelyn}", True),
    ("Evelyn", "nylevE", False),
    ("\\text{cat}", "act", False),
    ("\\text{(C)}", "C", True),
    ("C", "(C)", True),
    ("C", "B", False),
    ("east", "seat", False),
    ("2", "two", False),
    ("\\text{June 20}", "\\text{June 21}", False),
    # delimiters
    ("$5$", "5", True),
    ("\\(\\frac12\\)", "$0.5$", True),
]


def _problem(answer: str) -> Problem:
    return Problem(id="p", benchmark="b", split="test", prompt=(Message(role="user", content="?"),), answer=answer)


@pytest.mark.parametrize(("gold", "answer", "equal"), VERDICTS)
def test_regression_set(gold: str, answer: str, equal: bool) -> None:
    assert equal_answers(gold, answer) == Equality(equal)


def test_every_gold_answer_equals_itself() -> None:
    golds = sorted({gold for gold, _, _ in VERDICTS})
    assert [gold for gold in golds if equal_answers(gold, gold).equal is not True] == []


def test_a_boxed_answer_is_strict_and_an_unboxed_right_one_is_only_lenient() -> None:
    problem = _problem("\\frac{3}{4}")
    boxed = grade_math(problem, "We get $\\boxed{0.75}$.")
    assert (boxed.verdict, boxed.lenient, boxed.well_formed, boxed.extracted) == ("pass", "pass", True, "0.75")
    unboxed = grade_math(problem, "So it is $\\frac{3}{4}$.")
    assert (unboxed.verdict, unboxed.score, unboxed.lenient, unboxed.well_formed) == ("fail", 0.0, "pass", False)
    wrong = grade_math(problem, "\\boxed{\\frac{3}{4}} or rather \\boxed{\\frac{1}{4}}")
    assert (wrong.verdict, wrong.lenient, wrong.extracted) == ("fail", "fail", "\\frac{1}{4}")


def test_the_last_strict_form_counts() -> None:
    assert grade_math(_problem("4"), "The answer is 3. No: \\boxed{4}").verdict == "pass"
    assert grade_math(_problem("4"), "\\boxed{3}\n#### 4").verdict == "pass"
    assert grade_math(_problem("4"), "The answer is $\\boxed{4}$.").verdict == "pass"


def test_it_works_in_any_thread_and_in_many_at_once() -> None:
    results: list[Equality] = []
    thread = threading.Thread(target=lambda: results.append(equal_answers("\\frac12", "0.5")))
    thread.start()
    thread.join()
    assert results == [Equality(True)]
    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(lambda n: equal_answers(f"\\frac{{{n}}}{{7}}", f"{n}/7").equal, range(1, 60))]
    assert found == [True] * 59


ENDLESS = "9^{9^{9^{9}}}"


def test_an_answer_that_hangs_the_comparison_is_killed_and_wrong() -> None:
    """Its reference compares at once: otherwise a model could leave the count by answers that stop the grader."""
    found = equal_answers("x+1", ENDLESS, cpu_seconds=0.5)
    assert found.equal is False and found.error is not None and "timed out" in found.error
    assert equal_answers("\\frac12", "0.5") == Equality(True), "the next request finds a fresh process"
    grade = grade_math(_problem("x+1"), f"\\boxed{{{ENDLESS}}}", cpu_seconds=0.5)
    assert (grade.verdict, grade.lenient, grade.score) == ("fail", "fail", 0.0)
    assert grade.error is not None and "stops the comparison: timed out" in grade.error


def test_a_reference_that_hangs_the_comparison_is_not_scored() -> None:
    grade = grade_math(_problem(ENDLESS), "\\boxed{5+x}", cpu_seconds=0.5)
    assert (grade.verdict, grade.score) == ("not_scored", None)
    assert grade.error is not None and "timed out" in grade.error


def test_an_unreadable_reference_is_not_a_wrong_answer() -> None:
    grade = grade_math(_problem("{"), "\\boxed{5}")
    assert grade.verdict == "not_scored" and grade.error is not None


def test_an_unreadable_reference_is_not_scored_for_its_own_text_either() -> None:
    """To score only what is equal to the letter would count nothing but passes."""
    for answer in ("\\oplus\\ominus", "5"):
        found = equal_answers("\\oplus\\ominus", answer)
        assert found.equal is None and found.error is not None and "cannot be read" in found.error


def test_long_answers_are_wrong_at_once_and_long_numbers_are_numbers() -> None:
    found = equal_answers("x", "x+" * 5000 + "0")
    assert found.equal is False and found.error == "an answer of 10001 characters is not read"
    assert equal_answers("7" * 4000, "7" * 4000) == Equality(True)
    assert equal_answers("7", "7" * 4000) == Equality(False)
    feedback = grade_math(_problem("x"), "\\boxed{" + "y" * 10_000 + "}").feedback
    assert feedback is not None and len(feedback) < 300


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("3:00 \\text{ p.m.}", "3:00 PM", True),
        ("3:00 \\text{ p.m.}", "3:00", True),
        ("3:00 \\text{ p.m.}", "3:00 a.m.", False),
        ("12:00", "12:00", True),
        ("12:00", "1:00", False),
        ("12:00", "12", False),
        ("4:30 pm", "4:30\\text{ P.M.}", True),
        ("4:30", "2/15", True),
        ("3:4", "6:8", True),
    ],
)
def test_times_of_day_are_no_ratios(gold: str, answer: str, equal: bool) -> None:
    assert equal_answers(gold, answer) == Equality(equal)


def test_a_sentence_that_gives_the_answer_is_searched_leniently() -> None:
    text = "The answer is 12,000,023. I hope it is correct."
    assert grade_math(_problem("12000023"), text).verdict == "pass"
    prose = grade_math(_problem("34"), "First 5. Final Answer: The largest $n$ is 34.")
    assert (prose.verdict, prose.lenient, prose.well_formed) == ("fail", "pass", True)
    boxed = grade_math(_problem("34"), "\\boxed{33, and then 34}")
    assert (boxed.verdict, boxed.lenient) == ("fail", "fail")


def test_the_grading_processes_end_with_their_owner() -> None:
    script = (
        "from evaluation.grading.math import equal_answers, _pool\n"
        "assert equal_answers('\\\\frac12', '0.5').equal\n"
        "child = _pool().places.get()\n"
        "print(child.process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    child = int(done.stdout)
    for _ in range(200):
        try:
            with open(f"/proc/{child}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        threading.Event().wait(0.05)
    os.kill(child, 9)
    pytest.fail("the child outlived its killed owner by 10 s")


@pytest.mark.slow
def test_it_works_inside_a_ray_worker() -> None:
    script = (
        "import ray\n"
        "ray.init(address='local', num_cpus=1, include_dashboard=False, logging_level='ERROR', log_to_driver=False)\n"
        "@ray.remote(max_retries=0)\n"
        "def check():\n"
        "    from evaluation.grading.math import equal_answers\n"
        "    return equal_answers('\\\\frac12', '0.5')\n"
        "print(ray.get(check.remote(), timeout=120))\n"
        "ray.shutdown()\n"
    )
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
    }
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, env=environment)
    assert "Equality(equal=True, error=None)" in done.stdout, done.stderr
