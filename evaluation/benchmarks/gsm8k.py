"""GSM8K: grade-school word problems with worked solutions (Cobbe et al. 2021, arXiv:2110.14168).

Files ``gsm8k_train.jsonl`` and ``gsm8k_test.jsonl`` (fields question, answer) of the authors' repository, under the
benchmark folder. The test split is the authors' test file, whole. The validation split is a hold-out of the *training*
file: the questions whose SHA-256 (of the normalised question) is 0 modulo ``VALIDATION_ONE_IN``, about 5 %; the
train split is the rest. Both keep the file's order.

The worked solution keeps the authors' text without its calculator marks (``<<48/2=24>>``); its last line ``#### n``
is the answer. The verdict that counts is the strict one: the number after ``####``, inside ``\\boxed{}`` or after
"answer is", whichever stands last, as the prompt asks. The lenient verdict (the last number of the text when no such
form is there) and the format rate are kept beside it, so that a gain in format is not mistaken for one in arithmetic.
No published scores are listed here: their prompts and numbers of examples differ from these.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark, Score
from evaluation.benchmarks.reading import find_file, is_held_out, load_file, text_field
from evaluation.grading.extraction import after_hashes, answer_is, boxed
from evaluation.grading.numeric import grade_number, read_number, written
from evaluation.problems import Grade, Message, Problem, Split

FILES = {"train": "gsm8k_train.jsonl", "validation": "gsm8k_train.jsonl", "test": "gsm8k_test.jsonl"}
VALIDATION_ONE_IN = 20
INSTRUCTION = "Solve the problem step by step. End with a line that reads #### followed by the answer as a number."
SOURCE = "https://github.com/openai/grade-school-math"
GET = f"they are train.jsonl and test.jsonl of {SOURCE}, here as gsm8k_train.jsonl and gsm8k_test.jsonl"

_CALCULATOR = re.compile(r"<<[^<>]*>>")


def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    """The first ``limit`` problems of ``split`` in the file's order (all when None).

    Raises MissingDataError when the file is not under ``root``, ValueError naming file and line for a bad record.
    """

    def make(entry: dict[str, Any], place: str, number: int) -> Problem | None:
        return _problem(entry, split, place, number)

    return load_file(find_file("gsm8k", FILES[split], root, GET), limit, make)


def grade(problem: Problem, text: str) -> Grade:
    """Passes iff the strictly extracted answer is the problem's number."""
    return grade_number(problem, text, (after_hashes, boxed, answer_is))


def clean_solution(answer: str) -> str:
    """The worked solution without calculator marks: ``48/2 = <<48/2=24>>24`` becomes ``48/2 = 24``."""
    return _CALCULATOR.sub("", answer).strip()


def _problem(entry: dict[str, Any], split: Split, place: str, number: int) -> Problem | None:
    """The problem of one record; None when it belongs to the other split of its file."""
    question = text_field(entry, place, "question").strip()
    solution = clean_solution(text_field(entry, place, "answer"))
    if split != "test" and is_held_out(question, VALIDATION_ONE_IN) != (split == "validation"):
        return None
    found = after_hashes(solution)
    answer = None if found is None else read_number(found.text)
    if answer is None:
        raise ValueError(f"{place}: the answer does not end with '#### <number>'")
    return Problem(
        id=f"{FILES[split].removesuffix('.jsonl').removeprefix('gsm8k_')}-{number:04d}",
        benchmark="gsm8k",
        split=split,
        prompt=(Message(role="user", content=f"{question}\n\n{INSTRUCTION}"),),
        answer=written(answer),
        solution=solution,
    )


GSM8K = Benchmark(
    name="gsm8k",
    version="1",
    title="GSM8K, grade-school word problems",
    licence="MIT",
    source=SOURCE,
    splits=("train", "validation", "test"),
    max_new_tokens=512,
    load=load,
    grade=grade,
    files=(FILES["train"], FILES["test"]),
    kind="math",
    get=GET,
    grading="the number after the last ####, in \\boxed{} or after 'answer is', exactly; lenient: the last number",
    reproduced=(Score("SmolLM2-135M-Instruct", "accuracy on the first 64", 1.6, "stillroom sweep smollm2_gsm8k"),),
)
