"""The worked tasks as step-by-step walks whose facts may be true or invented (no torch here).

A *fact* is a key and its value: ``4+8+0=`` and ``12``, or ``9*7=`` and ``3``. A response walks over a question; each
step asks one key, and its value decides what the next step asks. Mid-training invents values where only a context can
say them, so that the context must be read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from evaluation.benchmarks import addition, chain

Source = Literal["covered", "shown", "answer"]
"""Where the value of a step comes from: a true fact the model shall know, an invented one, the final answer."""


@dataclass(frozen=True, slots=True)
class Path:
    """A question with the facts along its solution."""

    question: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    answer: str

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(key + value for key, value in zip(self.keys, self.values, strict=True))

    @property
    def solution(self) -> str:
        return f"{';'.join(self.rows)}#{self.answer}"


class Task(Protocol):
    """One task: how its steps follow from each other, and which of its facts are covered."""

    name: str
    steps: int
    row_width: int
    """Characters of one fact."""

    def key(self, question: str, step: int, before: str | None) -> str:
        """The key that ``step`` asks after the value ``before`` (None at the first step)."""
        ...

    def answer(self, values: Sequence[str]) -> str: ...

    def truth(self, key: str) -> str: ...

    def is_covered(self, key: str) -> bool: ...

    def is_held_out(self, question: str) -> bool: ...

    def random_key(self, source: random.Random, covered: bool) -> str:
        """A key for an irrelevant row."""
        ...

    def random_value(self, source: random.Random) -> str: ...

    def invented(self, key: str, table: dict[str, int], source: random.Random) -> str:
        """The value of ``key`` in the invented ``table``, which grows by what is missing."""
        ...

    def adjusted(self, key: str, shown: dict[str, str]) -> str | None:
        """The value of ``key`` as a related fact in ``shown`` implies it."""
        ...

    def from_answer(self, step: int, key: str, answer: str) -> str | None:
        """The value of ``key`` at ``step`` as the final answer implies it."""
        ...

    def answer_sources(self) -> tuple[Source, ...]:
        """Which steps may be invented when only the final answer is shown."""
        ...

    def random_by_answer(self, key: str, source: random.Random) -> str:
        """A random value of ``key`` that ``from_answer`` can tell."""
        ...

    def draw(self, sources: Sequence[Source], table: dict[str, int], source: random.Random) -> Path:
        """A path that is not held out, with the value of each step from its source."""
        ...


class AdditionTask:
    """``824+078``: see evaluation.benchmarks.addition. A fact is known when its digit pair is covered.

    An invented table gives each digit pair a number 0..18; the carry is added to it, as to a true sum.
    """

    name = "addition"
    steps = addition.DIGITS
    row_width = 8

    def __init__(self, covered: Sequence[tuple[int, int]]) -> None:
        self._pairs = [(x, y) for x in range(10) for y in range(10)]
        self._covered = [*covered]
        self._covered_set = frozenset(covered)

    def key(self, question: str, step: int, before: str | None) -> str:
        x, y = question[self.steps - 1 - step], question[2 * self.steps - step]
        return f"{x}+{y}+{before[0] if before else 0}="

    def answer(self, values: Sequence[str]) -> str:
        return values[-1][0] + "".join(value[1] for value in reversed(values))

    def truth(self, key: str) -> str:
        return f"{int(key[0]) + int(key[2]) + int(key[4]):02d}"

    def is_covered(self, key: str) -> bool:
        return (int(key[0]), int(key[2])) in self._covered_set

    def is_held_out(self, question: str) -> bool:
        return frozenset(map(int, question.split("+"))) in addition.held_out_operands()

    def random_key(self, source: random.Random, covered: bool) -> str:
        x, y = source.choice(self._covered if covered else self._pairs)
        return f"{x}+{y}+{source.randint(0, 1)}="

    def random_value(self, source: random.Random) -> str:
        return f"{source.randint(0, 19):02d}"

    def invented(self, key: str, table: dict[str, int], source: random.Random) -> str:
        if key[:3] not in table:
            table[key[:3]] = source.randint(0, 18)
        return f"{table[key[:3]] + int(key[4]):02d}"

    def adjusted(self, key: str, shown: dict[str, str]) -> str | None:
        other = shown.get(f"{key[:4]}{1 - int(key[4])}=")
        value = None if other is None else int(other) + (1 if key[4] == "1" else -1)
        return None if value is None or not 0 <= value <= 19 else f"{value:02d}"

    def from_answer(self, step: int, key: str, answer: str) -> str | None:
        return _with_tens(key, int(answer[self.steps - step]))

    def random_by_answer(self, key: str, source: random.Random) -> str:
        return _with_tens(key, source.randint(0, 9))

    def answer_sources(self) -> tuple[Source, ...]:
        return ("answer",) * self.steps

    def draw(self, sources: Sequence[Source], table: dict[str, int], source: random.Random) -> Path:
        while True:
            drawn = [source.choice(self._covered if origin == "covered" else self._pairs) for origin in sources]
            first, second = ("".join(str(pair[side]) for pair in reversed(drawn)) for side in (0, 1))
            question = f"{first}+{second}"
            if not self.is_held_out(question):
                return _walk(self, question, sources, table, source)


def _with_tens(key: str, digit: int) -> str:
    # x + y + carry has reached 10 exactly when its last digit is smaller than x + carry.
    return f"{int(digit < int(key[0]) + int(key[4]))}{digit}"


class ChainTask:
    """``9*7+5+3``: see evaluation.benchmarks.chain. Facts are covered one by one."""

    name = "chain"
    steps = chain.OPERANDS - 1
    row_width = 5

    def __init__(self, covered_sums: Sequence[tuple[int, int]], covered_products: Sequence[tuple[int, int]]) -> None:
        self._keys = [f"{a}{sign}{b}=" for sign in chain.SIGNS for a in range(10) for b in range(10)]
        self._covered = [f"{a}+{b}=" for a, b in covered_sums] + [f"{a}*{b}=" for a, b in covered_products]
        self._covered_set = frozenset(self._covered)

    def key(self, question: str, step: int, before: str | None) -> str:
        return f"{before or question[0]}{question[2 * step + 1 : 2 * step + 3]}="

    def answer(self, values: Sequence[str]) -> str:
        return values[-1]

    def truth(self, key: str) -> str:
        return str(chain.result(int(key[0]), key[1], int(key[2])))

    def is_covered(self, key: str) -> bool:
        return key in self._covered_set

    def is_held_out(self, question: str) -> bool:
        return question in chain.held_out_questions()

    def random_key(self, source: random.Random, covered: bool) -> str:
        return source.choice(self._covered if covered else self._keys)

    def random_value(self, source: random.Random) -> str:
        return str(source.randint(0, 9))

    def invented(self, key: str, table: dict[str, int], source: random.Random) -> str:
        if key not in table:
            table[key] = source.randint(0, 9)
        return str(table[key])

    def adjusted(self, key: str, shown: dict[str, str]) -> str | None:
        return None

    def from_answer(self, step: int, key: str, answer: str) -> str | None:
        return answer if step == self.steps - 1 else None

    def random_by_answer(self, key: str, source: random.Random) -> str:
        return self.random_value(source)

    def answer_sources(self) -> tuple[Source, ...]:
        return (*("covered",) * (self.steps - 1), "answer")

    def draw(self, sources: Sequence[Source], table: dict[str, int], source: random.Random) -> Path:
        while True:
            path = self._try(sources, table, source)
            if path is not None and not self.is_held_out(path.question):
                return path

    def _try(self, sources: Sequence[Source], table: dict[str, int], source: random.Random) -> Path | None:
        question, value = "", None
        for step, origin in enumerate(sources):
            keys = [
                key
                for key in (self._covered if origin == "covered" else self._keys)
                if value is None or key[0] == value
            ]
            if not keys:
                return None
            key = source.choice(keys)
            question += key[:3] if step == 0 else key[1:3]
            value = _value(self, origin, step, key, table, source)
        return _walk(self, question, sources, table, source)


def _walk(task: Task, question: str, sources: Sequence[Source], table: dict[str, int], source: random.Random) -> Path:
    keys: list[str] = []
    values: list[str] = []
    for step, origin in enumerate(sources):
        keys.append(task.key(question, step, values[-1] if values else None))
        values.append(_value(task, origin, step, keys[-1], table, source))
    return Path(question, tuple(keys), tuple(values), task.answer(values))


def _value(task: Task, origin: Source, step: int, key: str, table: dict[str, int], source: random.Random) -> str:
    if origin == "covered":
        return task.truth(key)
    return task.invented(key, table, source) if origin == "shown" else task.random_by_answer(key, source)
