r"""What the competition sets share: one test file, a boxed answer, grading by ``evaluation.grading.math``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, SamplingProtocol, Score
from evaluation.benchmarks.reading import field, find_file, load_file, refuse_training, text_field
from evaluation.grading.extraction import boxed
from evaluation.grading.math import grade_math
from evaluation.grading.numeric import read_number, written
from evaluation.problems import Grade, Message, Problem, Split

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
"""The field's usual request; models are trained on these words."""

GRADING = "the last \\boxed{…}: numbers exactly, words as text, else Math-Verify; lenient: any answer in the text"


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the last ``\\boxed{…}`` equals the answer."""
    return grade_math(problem, text, forms=(boxed,))


def _answer(entry: dict[str, Any], place: str) -> str:
    """The answer as text: numbers without ``.0`` and leading zeros, else as written, or the solution's last box."""
    if entry.get("answer") is None and isinstance(entry.get("solution"), str):
        found = boxed(entry["solution"])
        if found is None:
            raise ValueError(f"{place}: no answer, and no \\boxed{{…}} in the solution")
        return found.text
    answer = field(entry, place, "answer")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ValueError(f"{place}: the answer is neither text nor a number: {answer!r:.80}")
    number = read_number(str(answer))
    text = str(answer).strip() if number is None else written(number)
    if not text:
        raise ValueError(f"{place}: the answer is empty")
    return text.lstrip("0") or "0" if text.isdigit() else text


def _solution(entry: dict[str, Any], answer: str) -> str | None:
    """A worked solution; some files repeat the bare answer in that field, which is none."""
    solution = entry.get("solution")
    if not isinstance(solution, str) or not solution.strip() or solution.strip() == answer:
        return None
    return solution.strip()


def math_set(
    name: str,
    title: str,
    *,
    file: str,
    licence: str,
    source: str,
    get: str,
    max_new_tokens: int,
    version: str = "1",
    protocol: SamplingProtocol | None = None,
    published: tuple[Score, ...] = (),
) -> Benchmark:
    """A benchmark of one test file of records: ``problem`` or ``question``, and ``answer`` or a boxed ``solution``."""

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        refuse_training(name, split)

        def make(entry: dict[str, Any], place: str, number: int) -> Problem:
            question, answer = text_field(entry, place, "problem", "question").strip(), _answer(entry, place)
            identity = entry.get("unique_id", entry.get("id", entry.get("problem_idx")))
            return Problem(
                id=str(number if identity is None else identity),
                benchmark=name,
                split=split,
                prompt=(Message(role="user", content=f"{question}\n\n{INSTRUCTION}"),),
                answer=answer,
                solution=_solution(entry, answer),
            )

        return load_file(find_file(name, file, root, get), limit, make)

    return Benchmark(
        name=name,
        version=version,
        title=title,
        licence=licence,
        source=source,
        splits=("test",),
        max_new_tokens=max_new_tokens,
        load=load,
        grade=grade,
        files=(file,),
        kind="math",
        get=get,
        grading=GRADING,
        protocol=protocol,
        published=published,
    )
