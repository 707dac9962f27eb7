"""Equality of mathematical answers by Math-Verify, in a process of its own (see ``evaluation.grading.math``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluation.grading.serve import serve


def main() -> None:
    serve(_load)


def _load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    targets = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())

    def read(text: str) -> list[Any]:
        # Its own time limits work in main threads only; this process is limited from outside.
        limits: dict[str, Any] = {"parsing_timeout": None}
        return parse(text, extraction_config=targets, raise_on_error=True, **limits)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        gold = read(f"\\boxed{{{request['gold']}}}")
        if all(isinstance(value, str) for value in gold):
            return {"unreadable": True}
        candidate = read(f"\\boxed{{{request['answer']}}}" if request["whole"] else request["answer"])
        # Gold first: the comparison is not symmetric.
        equal = bool(candidate) and verify(gold, candidate, timeout_seconds=None, raise_on_error=True)
        return {"equal": bool(equal)}

    return answer
