"""The longest context that a view may come to show, for the check of lengths before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.problems import Problem
from training.contexts.build import problem_block
from training.contexts.language import Block, ContextLanguage
from training.contexts.reveal import answer_of, solution_of
from training.contexts.rows import ContextTokens
from training.contexts.specs import (
    Context,
    DemonstrationContext,
    EnvironmentFeedbackContext,
    NoContext,
    OtherProblemContext,
    OverlapMaskedContext,
    PartialSolutionContext,
    PeerSuccessContext,
    SelfCritiqueContext,
)


@dataclass(frozen=True, slots=True)
class LongestContext:
    """What is known before work: one text a problem, and the most tokens that rollouts may add to it."""

    texts: list[str]
    further_tokens: int
    turn: str | None
    """The language's template of the user's turn."""


def longest_context(
    context: Context,
    problems: Sequence[Problem],
    language: ContextLanguage,
    tokens: ContextTokens,
    max_new_tokens: int,
) -> LongestContext:
    """The longest context of each problem, with rollouts of ``max_new_tokens`` tokens; feedback counts as nothing."""
    match context:
        case NoContext():
            raise ValueError("a view without context has no longest one")
        case PeerSuccessContext() | EnvironmentFeedbackContext() | SelfCritiqueContext():
            return _from_rollouts(context, len(problems), language, max_new_tokens)
        case PartialSolutionContext() | OverlapMaskedContext():
            blocks = [_partial(context, problem, language) for problem in problems]
        case OtherProblemContext() | DemonstrationContext(of="another_problem"):
            # Any other problem may come, so the longest must fit.
            others = [problem_block(context, problem, language) for problem in problems]
            blocks = [max(others, key=lambda block: tokens.count(block[1]))] * len(problems)
        case _:
            blocks = [problem_block(context, problem, language) for problem in problems]
    return LongestContext([language.compose([block]) or "" for block in blocks], 0, language.turn(blocks[:1]))


def _partial(
    context: PartialSolutionContext | OverlapMaskedContext, problem: Problem, language: ContextLanguage
) -> Block:
    answer = answer_of(problem) if context.keep_answer else None
    return ("partial_solution", language.partial(solution_of(problem), answer))


def _from_rollouts(
    context: PeerSuccessContext | EnvironmentFeedbackContext | SelfCritiqueContext,
    rows: int,
    language: ContextLanguage,
    max_new_tokens: int,
) -> LongestContext:
    blocks: list[Block] = [("attempt", "")] if context.attempt else []
    further = max_new_tokens if context.attempt else 0
    match context:
        case PeerSuccessContext():
            blocks.append(("peer_success", ""))
            if context.feedback == "always":
                blocks.append(("feedback", ""))
            further += max_new_tokens
        case EnvironmentFeedbackContext():
            blocks.append(("feedback", ""))
        case SelfCritiqueContext():
            blocks.append(("critique", ""))
            further += context.max_new_tokens
    return LongestContext([language.compose(blocks) or ""] * rows, further, language.turn(blocks))
