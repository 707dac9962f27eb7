"""Builds the privileged context of every row of a batch (no torch here)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluation.problems import Problem
from training.contexts.attempts import environment_feedback, peer_success, self_critique
from training.contexts.language import Block, ContextLanguage
from training.contexts.reveal import answer_of, overlap_masked, partial_solution, solution_of
from training.contexts.rows import ContextRow, ContextTokens, PrivilegedContext, context_of
from training.contexts.specs import (
    AnswerContext,
    Context,
    DemonstrationContext,
    EnvironmentFeedbackContext,
    NoContext,
    OtherProblemContext,
    OverlapMaskedContext,
    PartialSolutionContext,
    PeerSuccessContext,
    SelfCritiqueContext,
    SolutionContext,
)


def build_contexts(
    context: Context,
    rows: Sequence[ContextRow],
    language: ContextLanguage,
    tokens: ContextTokens,
    auxiliary: Mapping[int, str] | None = None,
) -> list[PrivilegedContext | None]:
    """One context for each row of the batch; None masks the row for every term that uses the view.

    ``rows`` is the batch in order (a group of G rollouts repeats its problem G times), ``auxiliary`` the answers to
    ``auxiliary_requests`` by the place of their row. Raises ValueError naming the problem where a context cannot be
    had, TypeError for a share that is still a schedule.
    """
    match context:
        case NoContext():
            return [PrivilegedContext(None) for _ in rows]
        case PeerSuccessContext():
            return peer_success(context, rows, language, tokens)
        case EnvironmentFeedbackContext():
            return environment_feedback(context, rows, language, tokens)
        case SelfCritiqueContext():
            if auxiliary is None:
                raise ValueError("self_critique needs the answers to its auxiliary_requests")
            return self_critique(context, rows, language, tokens, auxiliary)
        case PartialSolutionContext():
            return [partial_solution(context, row, language, tokens) for row in rows]
        case OverlapMaskedContext():
            return [overlap_masked(context, row, language, tokens) for row in rows]
        case SolutionContext() | AnswerContext() | DemonstrationContext() | OtherProblemContext():
            return [_from_problem(context, rows, index, language) for index in range(len(rows))]


def _from_problem(
    context: SolutionContext | AnswerContext | DemonstrationContext | OtherProblemContext,
    rows: Sequence[ContextRow],
    index: int,
    language: ContextLanguage,
) -> PrivilegedContext:
    """A context that is one block of one problem, the row's own or the next."""
    problem = rows[index].problem
    if isinstance(context, OtherProblemContext) or getattr(context, "of", None) == "another_problem":
        problem = _next_other(rows, index, context.kind)
    return context_of([problem_block(context, problem, language)], language, problem.id)


def problem_block(
    context: SolutionContext | AnswerContext | DemonstrationContext | OtherProblemContext,
    problem: Problem,
    language: ContextLanguage,
) -> Block:
    """What ``context`` shows of ``problem``."""
    match context:
        case AnswerContext() | OtherProblemContext(shows="answer"):
            return ("answer", answer_of(problem))
        case DemonstrationContext(of="own_reference"):
            return ("demonstration", solution_of(problem))
        case DemonstrationContext():
            example = language.worked_example(problem.prompt[-1].content, solution_of(problem))
            return ("demonstration", example)
        case _:
            return ("solution", solution_of(problem))


def _next_other(rows: Sequence[ContextRow], index: int, kind: str) -> Problem:
    here = rows[index].problem.id
    for step in range(1, len(rows)):
        other = rows[(index + step) % len(rows)].problem
        if other.id != here:
            return other
    raise ValueError(
        f"{kind} needs another problem in the batch, and all {len(rows)} rows are of problem {here!r}: "
        "set batch.prompts to 3 or more"
    )
