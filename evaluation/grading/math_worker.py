"""Equality of mathematical answers by Math-Verify, in a process of its own (see ``evaluation.grading.math``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluation.grading.serve import serve

SMALL = 1e-3
"""Numbers below this must also agree within ``APART``: Math-Verify compares six decimals, where 2^{-99} is 0."""

APART = 0.01

NOTHING = 1e-15
"""What is left of an exact zero in floating point."""


def main() -> None:
    serve(_load)


def _load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    from sympy import Expr, N

    targets = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())

    def read(text: str) -> list[Any]:
        # Its own time limits work in main threads only; this process is limited from outside.
        limits: dict[str, Any] = {"parsing_timeout": None}
        return parse(text, extraction_config=targets, raise_on_error=True, **limits)

    def small_and_apart(gold: Any, other: Any) -> bool:
        if not all(isinstance(value, Expr) and value.is_number for value in (gold, other)):
            return False
        gold, other = gold.doit(), other.doit()
        sizes = abs(N(gold)), abs(N(other))
        if gold == other or max(sizes) >= SMALL:
            return False
        if gold.is_zero or other.is_zero:
            return bool(max(sizes) > NOTHING)
        return bool(abs(N(gold / other) - 1) > APART)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        gold = read(f"\\boxed{{{request['gold']}}}")
        if all(isinstance(value, str) for value in gold):
            return {"unreadable": True}
        candidate = read(f"\\boxed{{{request['answer']}}}" if request["whole"] else request["answer"])
        # Gold first: the comparison is not symmetric.
        equal = bool(candidate) and verify(gold, candidate, timeout_seconds=None, raise_on_error=True)
        return {"equal": equal and not small_and_apart(gold[0], candidate[0])}

    return answer
