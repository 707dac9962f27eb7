"""Procedural families of reasoning-gym: offline, seeded, with our own extraction and a second check of its scorers.

A family is one endless stream of questions (seed ``SEED``). A question's split is decided by its own text (SHA-256
modulo 20: 0 and 1 test, 2 validation, the rest train), so no question can be in two splits whatever their sizes; one
that comes again is left out. Ids carry the place in the stream, and grading makes the question again from it.

The scorers of the library are not taken at their word: some give part or all of the marks to text around an answer.
An answer is right when the scorer gives 1 to what stands between the answer tags and it is also the family's own answer
(as text without case, or as a number); only families with several right answers leave the decision to the scorer. Those
whose scorer is beyond that repair (``game_of_life_halting`` passes any text) are not here.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.choice import tagged
from evaluation.grading.extraction import answer_is, boxed, one_line, strict_answer
from evaluation.grading.numeric import read_number
from evaluation.problems import Grade, Message, Problem, Split, Verdict

VERSION = f"1-rg{version('reasoning-gym')}"
"""Changes with the rules here and with the library, which makes the questions."""
SEED = 20_260_101
SIZES: dict[Split, int] = {"train": 2000, "validation": 200, "test": 300}
"""Problems of a split where no limit is given."""
DRAWS_PER_PROBLEM = 200
"""A family that gives no new question in so many draws has no more of them."""

INSTRUCTION = "Write the final answer, and nothing else, between <answer> and </answer>."

FAMILIES: dict[str, str] = {
    "chain_sum": "sums and differences",
    "basic_arithmetic": "four operations with brackets",
    "decimal_chain_sum": "sums of decimals",
    "products": "products",
    "gcd": "greatest common divisors",
    "lcm": "least common multiples",
    "count_bits": "ones in a binary number",
    "base_conversion": "numbers in other bases",
    "simple_equations": "linear equations",
    "number_sequence": "next number of a sequence",
    "leg_counting": "legs of animals",
    "gsm_symbolic": "word problems from templates",
    "calendar_arithmetic": "dates and weekdays",
    "letter_counting": "letters in a text",
    "spell_backward": "words spelled backward",
    "word_sorting": "words in order",
    "caesar_cipher": "a shifted alphabet",
    "family_relationships": "who is whose",
    "syllogism": "whether a conclusion follows",
    "knights_knaves": "who tells the truth",
    "aiw": "siblings and colleagues",
    "maze": "steps through a maze",
    "shortest_path": "a way through a grid",
    "countdown": "an expression for a number",
    "list_functions": "a rule from examples",
}
"""The families that pass the checks of the tests, with what they ask."""

SEVERAL_ANSWERS = frozenset({"shortest_path", "countdown"})
"""Families whose scorer alone knows every right answer; it checks them move by move or number by number."""


def split_of(question: str) -> Split:
    """The split that a question belongs to."""
    digest = hashlib.sha256(" ".join(question.casefold().split()).encode()).digest()
    place = int.from_bytes(digest[:8], "big") % 20
    return "test" if place < 2 else "validation" if place == 2 else "train"


@functools.cache
def _stream(family: str) -> Any:
    """The family's data set; imported on first use (the library takes 2 s and 100 MB)."""
    import reasoning_gym

    return reasoning_gym.create_dataset(family, seed=SEED, size=DRAWS_PER_PROBLEM * sum(SIZES.values()))


def _questions(family: str, split: Split) -> Iterator[tuple[int, str, str]]:
    """Place in the stream, question and answer of each problem of ``split``; each question once."""
    stream, seen, last = _stream(family), set(), 0
    for index in range(len(stream)):
        entry = stream[index]
        question = str(entry["question"]).strip()
        if split_of(question) == split and question not in seen:
            seen.add(question)
            last = index
            yield index, question, str(entry["answer"])
        elif index - last > DRAWS_PER_PROBLEM:
            return


def _is_answer(answer: str, given: str) -> bool:
    numbers = read_number(answer), read_number(given)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    return " ".join(answer.casefold().split()) == " ".join(given.casefold().split())


def _benchmark(family: str, title: str) -> Benchmark:
    name = f"rg_{family}"

    def load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
        wanted = SIZES[split] if limit is None else limit
        problems: list[Problem] = []
        for index, question, answer in _questions(family, split) if wanted else ():
            problems.append(
                Problem(
                    id=f"{split}-{index}",
                    benchmark=name,
                    split=split,
                    prompt=(Message(role="user", content=f"{question}\n\n{INSTRUCTION}"),),
                    answer=answer,
                )
            )
            if len(problems) == wanted:
                break
        if len(problems) < wanted and limit is not None:
            raise ValueError(f"{name} has only {len(problems)} different {split} questions: ask for fewer than {limit}")
        return problems

    def right(problem: Problem, given: str | None) -> tuple[bool, float]:
        """Whether ``given`` is right, and the library's own score of it."""
        if given is None:
            return False, 0.0
        stream = _stream(family)
        score = float(stream.score_answer(given, entry=stream[int(problem.id.rpartition("-")[2])]))
        return score >= 1 and (family in SEVERAL_ANSWERS or _is_answer(problem.answer, given)), score

    def grade(problem: Problem, text: str) -> Grade:
        strict = tagged(text)
        passed, score = right(problem, strict)
        lenient = passed if strict is not None else right(problem, strict_answer(text, (boxed, answer_is, one_line)))[0]
        verdict: Verdict = "pass" if passed else "fail"
        read = "no <answer>…</answer>" if strict is None else f"the answer read is {strict[:200]!r}"
        return Grade(
            verdict=verdict,
            score=1.0 if passed else min(score, 0.99),
            grader="reasoning_gym",
            version=VERSION,
            extracted=strict,
            feedback=None if passed else read,
            well_formed=strict is not None,
            lenient="pass" if lenient else "fail",
        )

    return Benchmark(
        name=name,
        version=VERSION,
        title=f"reasoning-gym: {title}",
        licence="Apache-2.0",
        source="https://github.com/open-thought/reasoning-gym",
        splits=("train", "validation", "test"),
        max_new_tokens=1024,
        load=load,
        grade=grade,
        kind="reasoning",
        grading="the last <answer>…</answer> has the library's full score and is the answer itself",
    )


REASONING_GYM = tuple(_benchmark(family, title) for family, title in FAMILIES.items())
