"""Solutions shown in part: a beginning, a mark where the rest is hidden, and the final answer (USD, PAINT-style)."""

from __future__ import annotations

import math

from evaluation.problems import Problem
from training.contexts.anchors import recall
from training.contexts.language import ContextLanguage
from training.contexts.rows import ContextRow, ContextTokens, PrivilegedContext, context_of
from training.contexts.specs import OverlapMaskedContext, PartialSolutionContext, Unit
from training.schedules import Dynamic

ROUNDING = 1e-9
"""Added before a share of a length is rounded down: 0.29 · 100 is 28.999… in floating point."""


def solution_of(problem: Problem) -> str:
    """Raises ValueError where the problem has none."""
    if not (problem.solution or "").strip():
        raise ValueError(f"problem {problem.id!r} ({problem.benchmark}, {problem.split}) has no solution to show")
    return problem.solution or ""


def answer_of(problem: Problem) -> str:
    """Raises ValueError where the problem has none."""
    if not problem.answer.strip():
        raise ValueError(f"problem {problem.id!r} ({problem.benchmark}, {problem.split}) has no answer to show")
    return problem.answer


def partial_solution(
    context: PartialSolutionContext, row: ContextRow, language: ContextLanguage, tokens: ContextTokens
) -> PrivilegedContext:
    """The first ⌊share · length⌋ units of the row's solution."""
    share = _number(context.share)
    return reveal(row.problem, share, language, tokens, unit=context.unit, keep_answer=context.keep_answer)


def overlap_masked(
    context: OverlapMaskedContext, row: ContextRow, language: ContextLanguage, tokens: ContextTokens
) -> PrivilegedContext:
    """All but the last m(r) = min_hidden + (max_hidden − min_hidden)·r of the solution, r the attempt's recall."""
    if row.text is None:
        raise ValueError(f"overlap_masked compares a rollout with the solution, and {row.problem.id!r} has no rollout")
    r = recall(solution_of(row.problem), row.text, context.anchors)
    hidden = context.min_hidden + (context.max_hidden - context.min_hidden) * r
    return reveal(row.problem, 1 - hidden, language, tokens, unit=context.unit, keep_answer=context.keep_answer)


def reveal(
    problem: Problem,
    share: float,
    language: ContextLanguage,
    tokens: ContextTokens,
    *,
    unit: Unit,
    keep_answer: bool,
) -> PrivilegedContext:
    """The first ⌊share · length⌋ units of the solution, and the final answer if it is kept.

    The whole of it reads as a ``solution`` context does, nothing of it as an ``answer`` context, or as no context.
    A token that ends inside a character is left out.
    """
    solution = solution_of(problem)
    prefix = first_part(solution, share, unit, tokens)
    if prefix == solution:
        return context_of([("solution", solution)], language, problem.id)
    if not prefix:
        return context_of([("answer", answer_of(problem))] if keep_answer else [], language, problem.id)
    text = language.partial(prefix, answer_of(problem) if keep_answer else None)
    return context_of([("partial_solution", text)], language, problem.id)


def first_part(text: str, share: float, unit: Unit, tokens: ContextTokens) -> str:
    """The first ⌊share · length⌋ characters or tokens of ``text``."""
    if share >= 1:
        return text
    if unit == "characters":
        return text[: math.floor(share * len(text) + ROUNDING)]
    return tokens.prefix(text, math.floor(share * tokens.count(text) + ROUNDING))


def _number(share: Dynamic) -> float:
    if isinstance(share, int | float):
        return float(share)
    raise TypeError(f"share is {share!r}: build contexts with the method of one update, Method.at(update, outputs)")
