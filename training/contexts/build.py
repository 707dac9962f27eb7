"""Builds the privileged context of every row of a batch, and refuses problems that cannot have one (no torch here)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluation.problems import Problem
from training.contexts.specs import Context, NoContext, OtherProblemContext, SolutionContext
from training.method import CrossEntropy, Method


@dataclass(frozen=True, slots=True)
class PrivilegedContext:
    """What one row's prompt gains. ``text`` None leaves the prompt as the student sees it."""

    text: str | None
    source: str | None = None
    """Id of the problem that the text comes from."""


def build_contexts(context: Context, problems: Sequence[Problem]) -> list[PrivilegedContext | None]:
    """One context for each row of the batch; None masks the row for every term that uses the view.

    ``problems`` is the batch in order, with one entry a row (a group of G rollouts repeats its problem G times).
    Raises ValueError naming the problem where a context cannot be had.
    """
    match context:
        case NoContext():
            return [PrivilegedContext(None) for _ in problems]
        case SolutionContext():
            return [PrivilegedContext(_solution(problem), problem.id) for problem in problems]
        case OtherProblemContext():
            others = [_next_other(problems, row) for row in range(len(problems))]
            return [PrivilegedContext(_solution(other), other.id) for other in others]


def check_problems(method: Method, problems: Iterable[Problem]) -> None:
    """Refuses, before any work starts, training problems that ``method`` cannot use.

    A view with a ``solution`` or ``other_problem`` context and a term on references need ``solution`` on every
    problem; ``other_problem`` needs two different problems in every batch. Raises ValueError naming the problem and
    the fix.
    """
    needs = _solution_users(method)
    ids = set()
    for problem in problems:
        ids.add(problem.id)
        if needs and not (problem.solution or "").strip():
            raise ValueError(
                f"problem {problem.id!r} ({problem.benchmark}, {problem.split}) has no solution, which {needs[0]} of "
                f"method {method.key!r} needs: add a solution to it or leave it out of the training data"
            )
    if not ids:
        raise ValueError(f"no training problems for method {method.key!r}: the training data is empty")
    for name, view in method.views.items():
        if isinstance(view.context, OtherProblemContext) and (method.batch.prompts < 3 or len(ids) < 2):
            raise ValueError(
                f"views.{name}.context other_problem needs two different problems in every batch, also where one pass "
                f"over the data ends and the next begins: set batch.prompts (now {method.batch.prompts}) to 3 or more; "
                f"the training data has {len(ids)} problem(s)"
            )


def _solution_users(method: Method) -> list[str]:
    views = [
        f"views.{name}.context {view.context.kind}"
        for name, view in method.views.items()
        if isinstance(view.context, SolutionContext | OtherProblemContext)
    ]
    terms = [
        f"phases.{phase_name}.terms.{name} (on references)"
        for phase_name, phase in method.phases.items()
        for name, term in phase.terms.items()
        if isinstance(term, CrossEntropy) or term.data == "references"
    ]
    return views + terms


def _solution(problem: Problem) -> str:
    if problem.solution is None:
        raise ValueError(f"problem {problem.id!r} ({problem.benchmark}, {problem.split}) has no solution to show")
    return problem.solution


def _next_other(problems: Sequence[Problem], row: int) -> Problem:
    here = problems[row].id
    for step in range(1, len(problems)):
        other = problems[(row + step) % len(problems)]
        if other.id != here:
            return other
    raise ValueError(
        f"other_problem needs another problem in the batch, and all {len(problems)} rows are of problem {here!r}: "
        "set batch.prompts to 3 or more"
    )
