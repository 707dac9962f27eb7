"""The math grader: a regression set of verdicts, threads, time-outs, and what is never a wrong answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluation.grading.math import Equality, equal_answers, grade_math
from evaluation.problems import Message, Problem

PAIRS = Path(__file__).parent / "data" / "math_pairs.tsv"


def pairs(limits: bool) -> list[tuple[str, str, str]]:
    """(reference, answer, verdict) of the regression set; ``limits``: those where the grader is known to be wrong."""
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(gold, answer, verdict) for gold, answer, verdict, *rest in rows if (rest[-1:] == ["limit"]) is limits]


def verdict_of(gold: str, answer: str) -> str:
    equal = equal_answers(gold, answer).equal
    return "not_scored" if equal is None else "pass" if equal else "fail"


def _problem(answer: str) -> Problem:
    return Problem(id="p", benchmark="b", split="test", prompt=(Message(role="user", content="?"),), answer=answer)


def test_regression_set() -> None:
    """Over 250 pairs with the verdict that mathematics gives them, the order of gold and answer included."""
    cases = pairs(limits=False)
    assert len({case[:2] for case in cases}) == len(cases) > 250
    assert {"pass", "fail"} == {verdict for _, _, verdict in cases}
    assert [(*case, found) for case in cases if (found := verdict_of(*case[:2])) != case[2]] == []


def test_the_known_limits_are_still_limits() -> None:
    """A pair that the grader now gets right moves up into the regression set."""
    cases = pairs(limits=True)
    assert 0 < len(cases) < 10
    assert [case for case in cases if verdict_of(*case[:2]) == case[2]] == []


def test_every_gold_answer_equals_itself() -> None:
    golds = sorted({gold for limits in (False, True) for gold, _, _ in pairs(limits)})
    assert [gold for gold in golds if equal_answers(gold, gold).equal is not True] == []


def test_the_comparison_is_not_symmetric() -> None:
    """An inequality may be answered by its interval, not the reverse: a swapped order would change verdicts."""
    cases = [case for case in pairs(limits=False) if case[2] == "pass"]
    assert ("x > 2", "(2, \\infty)", "pass") in cases and verdict_of("(2, \\infty)", "x > 2") == "fail"


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
