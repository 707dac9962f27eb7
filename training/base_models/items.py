"""Mid-training items on the addition task: what the model is shown, and what it must predict."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from evaluation.benchmarks.addition import DIGITS, held_out_operands, question_text
from training.base_models.recipe import Recipe

DigitPair = tuple[int, int]

_LARGEST_RESULT = 19


@dataclass(frozen=True, slots=True)
class Item:
    """``seen`` is the response as the model's input, ``wanted`` as its target: equal but for corrupted results."""

    question: str
    context: str | None
    seen: str
    wanted: str


class ItemStream:
    """A deterministic stream of mid-training items for ``recipe``.

    No item has the operands of a held-out question of the addition benchmark, in either order.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._random = random.Random(f"items/{recipe.seed}")
        pairs = [(x, y) for x in range(10) for y in range(10)]
        self.covered: tuple[DigitPair, ...] = tuple(self._random.sample(pairs, recipe.covered_pairs))
        self._all: tuple[DigitPair, ...] = tuple(pairs)

    def without_context(self) -> Item:
        """A question over covered digit pairs."""
        digits = self._digits(self.covered)
        return self._item(digits, None, true_result)

    def with_context(self) -> Item:
        """A worked solution as context, with random or with true step results, and the response that repeats it."""
        if self._random.random() < self.recipe.random_context_share:
            digits = self._digits(self._all)
            results = [self._random_result() for _ in digits]
        else:
            digits = self._digits(self.covered)
            results = true_results(digits)
        context = respond(digits, lambda step, *_: results[step]).seen
        return self._item(digits, context, lambda step, *_: results[step])

    def _item(self, digits: list[DigitPair], context: str | None, result: Result) -> Item:
        corrupted = self._random.random() < self.recipe.corrupted_share
        rate = self.recipe.corruption_rate if corrupted else 0.0
        response = respond(digits, result, lambda: self._random_result() if self._random.random() < rate else None)
        return Item(_question(digits), context, response.seen, response.wanted)

    def _digits(self, pairs: tuple[DigitPair, ...]) -> list[DigitPair]:
        while True:
            digits = self._random.choices(pairs, k=DIGITS)
            if frozenset(_operands(digits)) not in held_out_operands():
                return digits

    def _random_result(self) -> str:
        return f"{self._random.randint(0, _LARGEST_RESULT):02d}"


Result = Callable[[int, int, int, int], str]
"""(step, first digit, second digit, carry) -> two digits."""


@dataclass(frozen=True, slots=True)
class Response:
    seen: str
    wanted: str


def true_result(step: int, first: int, second: int, carry: int) -> str:
    return f"{first + second + carry:02d}"


def true_results(digits: list[DigitPair]) -> list[str]:
    """The two digits of each step, least digit first."""
    results, carry = [], 0
    for first, second in digits:
        results.append(f"{first + second + carry:02d}")
        carry = (first + second + carry) // 10
    return results


def respond(digits: list[DigitPair], result: Result, replacement: Callable[[], str | None] = lambda: None) -> Response:
    """The response over ``digits`` (least first), where ``replacement`` may put another result into the input.

    Everything after a replaced result follows from it: the carry of the next step and the digits of the sum.
    """
    seen, wanted, total, carry = [], [], "", "0"
    for step, (first, second) in enumerate(digits):
        right = result(step, first, second, int(carry))
        shown = replacement() or right
        asked = f"{first}+{second}+{carry}="
        seen.append(asked + shown)
        wanted.append(asked + right)
        carry, total = shown[0], shown[1] + total
    ending = f"#{carry}{total}"
    return Response(";".join(seen) + ending, ";".join(wanted) + ending)


def _operands(digits: list[DigitPair]) -> tuple[int, int]:
    first, second = (int("".join(str(pair[side]) for pair in reversed(digits))) for side in (0, 1))
    return first, second


def _question(digits: list[DigitPair]) -> str:
    return question_text(_operands(digits))
