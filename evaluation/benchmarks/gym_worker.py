"""Scoring by reasoning-gym in a process of its own: some of its scorers run symbolic algebra without end."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from evaluation.grading.serve import serve

KEPT = 4096
"""Entries kept: the answers of a group share one, and some take a second to make."""


def main() -> None:
    serve(_load)


def _load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from evaluation.benchmarks.gym_families import family_stream

    # The import is part of the start: the processor time of the first answer must not pay for it.
    importlib.import_module("reasoning_gym")

    @functools.lru_cache(maxsize=KEPT)
    def entry_of(family: str, index: int) -> dict[str, Any]:
        return family_stream(family)[index]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        entry = entry_of(request["family"], request["index"])
        score = family_stream(request["family"]).score_answer(request["given"], entry=entry)
        return {"score": float(score), "question": str(entry["question"]).strip()}

    return answer
