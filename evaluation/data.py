"""The user's own data: JSONL files of problems, their splits, their grader, and the order of training.

One record a line: ``problem`` (text) or ``prompt`` (messages), ``answer`` or ``tests`` (programs a code answer must
pass), and optionally ``solution`` (worked, privileged), ``id`` and ``cluster`` (what must stay on one side of a split).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.code import grade_code
from evaluation.grading.extraction import Form, after_number_sign, answer_is, boxed, one_line
from evaluation.grading.math import grade_math
from evaluation.grading.numeric import grade_number
from evaluation.grading.text import grade_text
from evaluation.jsonl import DataError, Record, read_problems
from evaluation.overlap import Overlap, check_overlap, group_alike, normal_form, text_of
from evaluation.problems import Grade, Problem, Split

__all__ = [
    "DataError",
    "Overlap",
    "UserData",
    "check_overlap",
    "load_user_data",
    "solutions_graded_wrong",
    "training_order",
    "user_benchmark",
]

BENCHMARK = "data"
"""Name of the benchmark that the user's own data is."""

HELD_OUT_SHARE = 0.1
"""Share of the training file held out for each of validation and test when no file is given for it."""

MAX_NEW_TOKENS = 512

FORMS: tuple[Form, ...] = (boxed, after_number_sign, answer_is, one_line)
"""Strict answers of user data: ``\\boxed{…}``, what follows the last ``#``, "answer is …", or a one-line response."""

Grader = Literal["math", "number", "text"]

_GRADERS: dict[Grader, Callable[[Problem, str], Grade]] = {
    "math": lambda problem, text: grade_math(problem, text, forms=FORMS),
    "number": lambda problem, text: grade_number(problem, text, FORMS),
    "text": lambda problem, text: grade_text(problem, text, forms=FORMS),
}


@dataclass(frozen=True)
class UserData:
    """The user's problems by split. ``content_hash`` changes with any problem, answer, solution, test or split."""

    train: list[Problem]
    validation: list[Problem]
    test: list[Problem]
    content_hash: str
    places: Mapping[str, str]
    """``file:line`` of each problem, by ``<split>/<id>``."""

    def split(self, name: Split) -> list[Problem]:
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]


def load_user_data(
    train: Path,
    validation: Path | None = None,
    test: Path | None = None,
    *,
    validation_share: float = HELD_OUT_SHARE,
    test_share: float = HELD_OUT_SHARE,
) -> UserData:
    """The user's problems, each split from its own file or held out from ``train``.

    A split without a file takes its share of the training file (0 leaves it empty): groups of problems that are alike
    or share a ``cluster`` are ordered by the SHA-256 of their normalised text, test takes the first groups until its
    share is reached, validation the next. No group is divided, and the order of the file does not matter.

    Raises DataError naming file and line for anything wrong with a file, for shares that leave a split empty, and for
    problems that stand, in the same words or nearly, in two splits.
    """
    files: dict[Split, Path | None] = {"train": train, "validation": validation, "test": test}
    shares: dict[Split, float] = {
        "test": 0.0 if test else test_share,
        "validation": 0.0 if validation else validation_share,
    }
    if not all(0 <= share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise DataError(f"held-out shares must be at least 0 and leave training problems, got {shares}")
    splits: dict[Split, list[Record]] = {
        split: read_problems(file, benchmark=BENCHMARK, split=split)
        for split, file in files.items()
        if file is not None
    }
    splits = _hold_out(train, splits.pop("train"), shares) | splits
    _refuse_overlap(splits)
    problems = {split: [record.problem for record in records] for split, records in splits.items()}
    return UserData(
        train=problems["train"],
        validation=problems.get("validation", []),
        test=problems.get("test", []),
        content_hash=_content_hash(problems),
        places={f"{split}/{r.problem.id}": r.place for split, records in splits.items() for r in records},
    )


def _hold_out(file: Path, records: list[Record], shares: Mapping[Split, float]) -> dict[Split, list[Record]]:
    """Train, and each split with a positive share, from the records of one file."""
    groups: dict[int, list[int]] = {}
    for number, group in enumerate(group_alike([record.problem for record in records])):
        groups.setdefault(group, []).append(number)
    waiting = sorted(groups.values(), key=lambda members: min(_hash(records[m].problem) for m in members))
    taken: dict[int, Split] = {}
    for split, share in shares.items():
        wanted, count = max(1, round(share * len(records))) if share else 0, 0
        while count < wanted and waiting:
            members = waiting.pop(0)
            taken |= dict.fromkeys(members, split)
            count += len(members)
        if share and (count == 0 or not waiting):
            raise DataError(
                f"{file}: {len(records)} records in {len(groups)} groups of alike problems are too few to hold out "
                f"{split}: give data.{split} as a file of its own, or more records"
            )
    names: list[Split] = ["train", *(split for split, share in shares.items() if share)]
    return {
        split: [_moved(r, split) for n, r in enumerate(records) if taken.get(n, "train") == split] for split in names
    }


def _moved(record: Record, split: Split) -> Record:
    return Record(record.problem.model_copy(update={"split": split}), record.place)


def _hash(problem: Problem) -> str:
    return hashlib.sha256(normal_form(text_of(problem)).encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_overlap(splits: Mapping[Split, list[Record]]) -> None:
    for one, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
        left, right = splits.get(one, []), splits.get(other, [])
        overlaps = check_overlap([record.problem for record in left], [record.problem for record in right])
        if overlaps:
            places = {record.problem.id: record.place for record in left}, {r.problem.id: r.place for r in right}
            shown = "; ".join(f"{places[0][o.train_id]} and {places[1][o.test_id]} ({o.kind})" for o in overlaps[:5])
            more = f"; and {len(overlaps) - 5} more" if len(overlaps) > 5 else ""
            raise DataError(f"{one} and {other} share {len(overlaps)} problems: {shown}{more}: remove one of each pair")


def _content_hash(problems: Mapping[Split, Sequence[Problem]]) -> str:
    digest = hashlib.sha256()
    for split in sorted(problems):
        for problem in problems[split]:
            digest.update(json.dumps(problem.model_dump(mode="json"), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def user_benchmark(data: UserData, grader: Grader = "math") -> Benchmark:
    """The user's data as the benchmark ``data``.

    A problem with ``tests`` is graded by running them in the sandbox against the answer's code block; its ``answer``
    is then only a reference. Any other problem is graded by ``grader``, and by nothing else: ``math`` (the default:
    numbers exactly, words as text, other expressions by Math-Verify), ``number``, or ``text`` (character by
    character). Answers are read from the strict FORMS.
    """
    return Benchmark(
        name=BENCHMARK,
        version=f"1-{grader}-{data.content_hash[:12]}",
        title="Your own data",
        licence="your own",
        source="JSONL files",
        splits=tuple(split for split in ("train", "validation", "test") if data.split(split)),
        max_new_tokens=MAX_NEW_TOKENS,
        load=lambda split, *, limit=None, root=None: data.split(split)[:limit],
        grade=lambda problem, text: grade_code(problem, text) if problem.tests else _GRADERS[grader](problem, text),
    )


def solutions_graded_wrong(benchmark: Benchmark, problems: Sequence[Problem]) -> list[tuple[Problem, Grade]]:
    """The problems whose own solution the benchmark's grader does not pass.

    A student that imitates such a solution perfectly scores nothing: its answer does not stand where the grader looks
    (see FORMS), or another grader is needed.
    """
    graded = [(problem, benchmark.grade(problem, problem.solution)) for problem in problems if problem.solution]
    return [(problem, grade) for problem, grade in graded if grade.verdict == "fail"]


def training_order(n: int, seed: int, start: int, count: int) -> list[int]:
    """Indices into ``n`` training problems for positions ``start`` to ``start + count`` of one endless order.

    Position p belongs to epoch p // n, and each epoch is a permutation of its own, so the order is a function of
    (n, seed, position) only and a resumed run goes on where it stopped. The permutation of epoch e sorts the first n
    outputs of Philox4x64-10 with key (seed, e); NumPy promises never to change them.
    """
    if n < 1 or start < 0 or count < 0 or not 0 <= seed < 1 << 64:
        raise ValueError(f"no order for n={n}, seed={seed}, start={start}, count={count}")
    order: list[int] = []
    for epoch in range(start // n, (start + count + n - 1) // n):
        first = max(start - epoch * n, 0)
        last = min(start + count - epoch * n, n)
        order += _permutation(n, seed, epoch)[first:last].tolist()
    return order


def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    # The counter's last word sets this stream apart from the samplers' uniforms under an equal key.
    generator = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64), counter=[0, 0, 0, 1])
    return np.argsort(generator.random_raw(n), kind="stable")
