"""Procedural families of reasoning-gym: offline, seeded, with our own extraction and a second check of its scorers.

A family is one endless stream of questions (seed ``SEED``). A question's split is decided by its own normal form
(SHA-256 modulo 20: 0 to 3 test, 4 to 7 validation, the rest train), so no question can be in two splits whatever their
sizes; one that comes again is left out. Families whose questions are much alike (``alike``) also leave out training
questions that are nearly one of the first ``COMPARED`` of the test or the validation split. Ids carry the place in the
stream, and grading makes the question again from it.

An answer is what stands in the last ``<answer>…</answer>``. It is right when the library's scorer gives it 1 and

* where one answer is right, it is that answer: the same number, the same JSON value, or the same text up to case,
  spaces and quotes;
* where several are, it has the family's ``shape`` (see ``gym_table``): nothing around the answer.

An answer that is not of the shape is wrong, and the scorer is not asked: it might raise, or evaluate the text. A scorer
that raises on a well-formed right answer, or runs out of time, gives ``not_scored``. ``score`` is the library's own
figure, below 1 for wrong answers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.benchmarks.base import Benchmark
from evaluation.benchmarks.gym_table import FAMILIES, Family
from evaluation.grading.choice import tagged
from evaluation.grading.extraction import answer_is, boxed, one_line, strict_answer
from evaluation.grading.numeric import read_number
from evaluation.grading.processes import GradingProcessDied, GradingTimeout, ProcessPool
from evaluation.overlap import check_overlap, normal_form
from evaluation.problems import Grade, Message, Problem, Split, Verdict

VERSION = f"3-rg{version('reasoning-gym')}"
"""Changes with the rules here and with the library, which makes the questions."""
SEED = 20_260_101
SIZES: dict[Split, int] = {"train": 2000, "validation": 200, "test": 300}
"""Problems of a split where no limit is given."""
COMPARED = 500
"""Held-out questions of a split that training questions of ``alike`` families are compared with."""
TOGETHER = 2500
"""Training questions compared with them at once: what is boilerplate is told by how many questions say it."""
FEW = 250
"""The same for a run that trains on few."""
DRAWS_PER_PROBLEM = 200
"""A family that gives no new question in so many draws has no more of them."""
STREAM = 500_000
"""Length of a stream."""
LONGEST = 20_000
"""Characters of an answer; a longer one is wrong."""
CPU_SECONDS = 5.0
"""Processor time for one answer, its question made again included."""

INSTRUCTION = "Write the final answer, and nothing else, between <answer> and </answer>."

_FRACTION = re.compile(r"[+-]?\d{1,40}/0*[1-9]\d{0,40}")
_PUNCTUATION = re.compile(r"\s*([][(){},:;])\s*")


def split_of(question: str) -> Split:
    """The split that a question belongs to."""
    digest = hashlib.sha256(normal_form(question).encode()).digest()
    place = int.from_bytes(digest[:8], "big") % 20
    return "test" if place < 4 else "validation" if place < 8 else "train"


@functools.cache
def family_stream(family: str) -> Any:
    """The family's data set; imported on first use (the library takes 2 s and 100 MB)."""
    import reasoning_gym

    return reasoning_gym.create_dataset(family, seed=SEED, size=STREAM)


@functools.cache
def _pool() -> ProcessPool:
    return ProcessPool("evaluation.benchmarks.gym_worker", 1)


@contextmanager
def _random_states_kept() -> Generator[None]:
    """Some families seed the generators of the whole process; a caller's draws must not depend on that."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _questions(name: str, split: Split) -> Iterator[tuple[int, str, str]]:
    """Place in the stream, question and answer of each problem of ``split``; each question once."""
    stream, family, seen, last = family_stream(name), FAMILIES[name], set(), 0
    for index in range(len(stream)):
        entry = stream[index]
        question = str(entry["question"]).strip()
        form = normal_form(question)
        if split_of(question) == split and form not in seen:
            seen.add(form)
            last = index
            yield index, question, _gold(entry, family)
        elif index - last > DRAWS_PER_PROBLEM:
            return


def _gold(entry: dict[str, Any], family: Family) -> str:
    if family.example is None:
        return str(entry["answer"])
    example = entry["metadata"][family.example]
    return example if isinstance(example, str) else json.dumps(example)


def _problem(name: str, split: Split, index: int, question: str, answer: str) -> Problem:
    return Problem(
        id=f"{split}-{index}",
        benchmark=f"rg_{name}",
        split=split,
        prompt=(Message(role="user", content=f"{question}\n\n{INSTRUCTION}"),),
        answer=answer,
    )


def _problems(name: str, split: Split) -> Iterator[Problem]:
    """The problems of ``split`` in their order; train without what is nearly held out."""
    found = (_problem(name, split, *question) for question in _questions(name, split))
    if split != "train" or not FAMILIES[name].alike:
        yield from found
        return
    test, validation = _load(name, "test", COMPARED), _load(name, "validation", COMPARED)
    # The sizes that a run asks for, and none: which phrases count as boilerplate depends on how many texts there are.
    sides = (test, validation, [*test, *validation], test[: SIZES["test"]], validation[: SIZES["validation"]])
    while some := [*islice(found, TOGETHER)]:
        alike = {overlap.train_id for side in sides for overlap in check_overlap(some, side)}
        for start in range(0, len(some), FEW):
            few = some[start : start + FEW]
            alike |= {overlap.train_id for side in (test, validation) for overlap in check_overlap(few, side)}
        left = [problem for problem in some if problem.id not in alike]
        alike = {overlap.train_id for side in sides for overlap in check_overlap(left[: SIZES["train"]], side)}
        yield from (problem for problem in left if problem.id not in alike)


def _load(name: str, split: Split, wanted: int) -> list[Problem]:
    problems: list[Problem] = []
    with _random_states_kept():
        for problem in _problems(name, split) if wanted else ():
            problems.append(problem)
            if len(problems) == wanted:
                break
    return problems


def _value(text: str) -> Fraction | str:
    """What ``text`` says, to compare by: a number, or the text (JSON with its keys in order) without case, spare spaces
    and quotes."""
    number = read_number(text)
    if number is not None:
        return Fraction(number)
    text = text.strip()
    if _FRACTION.fullmatch(text):
        return Fraction(text)
    if text.startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    plain = " ".join(text.casefold().replace('"', "").replace("'", "").split())
    return _PUNCTUATION.sub(r"\1", plain)


@dataclass(frozen=True, slots=True)
class _Judgement:
    right: bool | None
    """None when it could not be found out; ``error`` says why."""
    score: float
    error: str | None = None


def _judge(name: str, family: Family, problem: Problem, given: str | None) -> _Judgement:
    """Whether ``given`` is right, and the library's own score of it."""
    if given is None or len(given) > LONGEST:
        return _Judgement(False, 0.0)
    if family.shape is not None:
        fits = re.fullmatch(family.shape, given) is not None
    else:
        gold, value = _value(problem.answer), _value(given)
        fits = type(gold) is type(value) and gold == value
        # A number counts however it is written; the scorers compare texts.
        given = problem.answer if fits and isinstance(gold, Fraction) else given
    if not fits and (family.shape is not None or not family.partial):
        return _Judgement(False, 0.0)
    index = int(problem.id.rpartition("-")[2])
    reply: dict[str, Any]
    try:
        reply = _pool().ask({"family": name, "index": index, "given": given}, cpu_seconds=CPU_SECONDS)
    except (GradingTimeout, GradingProcessDied) as error:
        reply = {"error": str(error)}
    if not fits:
        return _Judgement(False, min(reply.get("score", 0.0), 0.99))
    if reply.get("error"):
        return _Judgement(None, 0.0, reply["error"])
    if not problem.prompt[0].content.startswith(reply["question"]):
        return _Judgement(None, 0.0, f"reasoning-gym {version('reasoning-gym')} asks another question at {index}")
    return _Judgement(reply["score"] >= 1, reply["score"])


def _grade(name: str, family: Family, problem: Problem, text: str) -> Grade:
    strict = tagged(text)
    found = _judge(name, family, problem, strict)
    lenient = found
    if strict is None:
        lenient = _judge(name, family, problem, strict_answer(text, (boxed, answer_is, one_line)))
    verdict = _verdict(found)
    read = "no <answer>…</answer>" if strict is None else f"the answer read is {strict[:200]!r}"
    return Grade(
        verdict=verdict,
        score=None if verdict == "not_scored" else found.score,
        grader="reasoning_gym",
        version=VERSION,
        extracted=strict,
        feedback=read if verdict == "fail" else None,
        error=found.error,
        well_formed=strict is not None,
        lenient=_verdict(lenient),
    )


def _verdict(found: _Judgement) -> Verdict:
    return "not_scored" if found.right is None else "pass" if found.right else "fail"


def _benchmark(name: str, family: Family) -> Benchmark:
    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        problems = _load(name, split, SIZES[split] if limit is None else limit)
        if limit is not None and len(problems) < limit:
            raise ValueError(
                f"rg_{name} has only {len(problems)} different {split} questions: ask for fewer than {limit}"
            )
        return problems

    return Benchmark(
        name=f"rg_{name}",
        version=VERSION,
        title=f"reasoning-gym: {family.title}",
        licence="Apache-2.0",
        source="https://github.com/open-thought/reasoning-gym",
        splits=("train", "validation", "test"),
        max_new_tokens=1024,
        load=load,
        grade=functools.partial(_grade, name, family),
        kind="reasoning",
        grading="the last <answer>…</answer> has the library's full score and "
        + ("is the answer itself" if family.shape is None else "nothing around the answer"),
        listed=family.listed,
    )


REASONING_GYM = tuple(_benchmark(name, family) for name, family in FAMILIES.items())
