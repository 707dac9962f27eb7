"""Refuses, before any work, training problems and settings that a method's contexts and terms cannot use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Problem
from training.contexts.specs import (
    AnswerContext,
    Context,
    DemonstrationContext,
    EnvironmentFeedbackContext,
    OtherProblemContext,
    OverlapMaskedContext,
    PartialSolutionContext,
    PeerSuccessContext,
    SelfCritiqueContext,
    SolutionContext,
)
from training.method import CrossEntropy, Method
from training.method.terms import AnyTerm

PROBED_PROBLEMS = 3
"""So many training problems are answered with nothing, to see whether their benchmark gives feedback."""

_FROM_ROLLOUTS = (OverlapMaskedContext, PeerSuccessContext, EnvironmentFeedbackContext, SelfCritiqueContext)


def check_problems(method: Method, problems: Iterable[Problem], benchmark: Benchmark | None = None) -> None:
    """Raises ValueError naming the place and the fix for what ``method`` cannot be trained on.

    A missing solution or answer, contexts made of rollouts where there is no rollout or no other one, a control
    without a second problem, and feedback from a ``benchmark`` that gives none (asked with an empty answer; not
    checked when it is None).
    """
    contexts = {name: view.context for name, view in method.views.items() if name in method.views_used()}
    chosen = [*problems]
    if not chosen:
        raise ValueError(f"no training problems for method {method.key!r}: the training data is empty")
    _check_solutions_and_answers(method, contexts, chosen)
    _check_second_problem(method, contexts, chosen)
    _check_rollouts(method, contexts)
    for name, context in contexts.items():
        _check_peers(method, f"views.{name}.context {context.kind}", context, chosen, benchmark)


def sample_feedback(benchmark: Benchmark, problems: Sequence[Problem]) -> list[str]:
    """What ``benchmark`` says of empty answers to the first problems; empty when it says nothing."""
    grades = [benchmark.grade(problem, "") for problem in islice(problems, PROBED_PROBLEMS)]
    said = [(grade.feedback or "").strip() for grade in grades if grade.verdict == "fail"]
    return [feedback for feedback in said if feedback]


def needs_solution(context: Context) -> bool:
    match context:
        case OtherProblemContext():
            return context.shows == "solution"
        case SolutionContext() | PartialSolutionContext() | OverlapMaskedContext() | DemonstrationContext():
            return True
        case _:
            return False


def needs_answer(context: Context) -> bool:
    match context:
        case OtherProblemContext():
            return context.shows == "answer"
        case PartialSolutionContext() | OverlapMaskedContext():
            return context.keep_answer
        case _:
            return isinstance(context, AnswerContext)


def _check_solutions_and_answers(method: Method, contexts: dict[str, Context], problems: Sequence[Problem]) -> None:
    solutions = [f"views.{name}.context {c.kind}" for name, c in contexts.items() if needs_solution(c)]
    solutions += _terms_on_references(method)
    answers = [f"views.{name}.context {c.kind}" for name, c in contexts.items() if needs_answer(c)]
    for problem in problems:
        for what, text, users in (("solution", problem.solution, solutions), ("answer", problem.answer, answers)):
            if users and not (text or "").strip():
                raise ValueError(
                    f"problem {problem.id!r} ({problem.benchmark}, {problem.split}) has no {what}, which {users[0]} "
                    f"of method {method.key!r} needs: add {'an' if what == 'answer' else 'a'} {what} to it or leave "
                    "it out of the training data"
                )


def _terms_on_references(method: Method) -> list[str]:
    places = [
        f"phases.{phase_name}.terms.{name} (on references)"
        for phase_name, phase in method.phases.items()
        for name, term in phase.terms.items()
        if _reads_references(term)
    ]
    return places + [f"controllers.{name}" for name, c in method.controllers.items() if c.kind == "alignment"]


def _reads_references(term: AnyTerm) -> bool:
    if isinstance(term, CrossEntropy) and (term.labels == "references" or term.alignment is not None):
        return True
    return term.data == "references"


def _check_second_problem(method: Method, contexts: dict[str, Context], problems: Sequence[Problem]) -> None:
    for name, context in contexts.items():
        if isinstance(context, OtherProblemContext) or getattr(context, "of", None) == "another_problem":
            ids = len({problem.id for problem in problems})
            if method.batch.prompts < 3 or ids < 2:
                raise ValueError(
                    f"views.{name}.context {context.kind} needs two different problems in every batch, also where one "
                    f"pass over the data ends and the next begins: set batch.prompts (now {method.batch.prompts}) to 3 "
                    f"or more; the training data has {ids} problem(s)"
                )


def _check_rollouts(method: Method, contexts: dict[str, Context]) -> None:
    """Contexts made of rollouts stand beside rollouts only, and not before they are drawn."""
    for name, context in contexts.items():
        if not isinstance(context, _FROM_ROLLOUTS):
            continue
        place = f"views.{name}.context {context.kind}"
        if name == method.rollout_view:
            raise ValueError(f"{place} is made of rollouts, and rollout_view draws them: name another view there")
        for term in method.terms():
            if term.data == "references" and name in (term.of, *term.targets()):
                raise ValueError(
                    f"{place} is made of rollouts, and a term looks through it at references: give the term data "
                    "rollouts, or the view a context that depends on the problem alone"
                )


def _check_peers(
    method: Method, place: str, context: Context, problems: Sequence[Problem], benchmark: Benchmark | None
) -> None:
    """Some row must be able to have a context at all."""
    alone = isinstance(context, PeerSuccessContext) and context.exclude_self and method.batch.group_size < 2
    if alone and getattr(context, "feedback", "never") == "never":
        raise ValueError(
            f"{place} needs another rollout of the same problem: set batch.group_size (now 1) to 2 or more, or "
            "context.feedback to without_peer"
        )
    if not alone and not isinstance(context, EnvironmentFeedbackContext):
        return
    if benchmark is not None and not sample_feedback(benchmark, problems):
        fix = "set batch.group_size (now 1) to 2 or more" if alone else "take another context, e.g. self_critique"
        raise ValueError(
            f"{place} needs feedback on wrong answers, and benchmark {benchmark.name!r} gives none: {fix}, or a "
            "grader that gives feedback"
        )
