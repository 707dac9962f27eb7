"""Which term of a method has the teacher, whose weights it has, and what keeps it from looking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.contexts.checks import needs_answer, needs_solution
from training.contexts.specs import (
    Context,
    DemonstrationContext,
    EnvironmentFeedbackContext,
    NoContext,
    OtherProblemContext,
    PeerSuccessContext,
    SelfCritiqueContext,
)
from training.draws import Group
from training.losses.names import estimator_name, temperature_of
from training.method import Distill, EmaWeights, Method, PolicyGradient, StudentWeights, SyncedWeights, View


@dataclass(frozen=True, slots=True)
class Teaching:
    """A term that holds the student against a teacher. Numbers are those of one update (``Method.at``)."""

    name: str
    term: Distill | PolicyGradient
    """On rollouts, without importance ratios: what it says of responses that were just drawn."""
    student: str
    teacher: str
    """Names of the two views."""

    @property
    def divergence(self) -> str | None:
        """The name of the term's divergence; None where it has none."""
        return estimator_name(self.term) if isinstance(self.term, Distill) else None

    @property
    def temperature(self) -> float:
        return temperature_of(self.term)


def teaching_of(method: Method) -> Teaching | None:
    """The first distillation term whose student sees the plain problem, else the first advantage from a teacher.

    None for methods without a teacher (GRPO, SFT). ``method`` is that of one update.
    """
    named = [(name, term) for phase in method.phases.values() for name, term in phase.terms.items()]
    plain = [(name, term) for name, term in named if isinstance(method.views[term.of].context, NoContext)]
    for name, term in plain:
        if isinstance(term, Distill):
            alone = {"data": "rollouts", "importance": None, "sampler_importance_clip": None}
            return Teaching(name, term.model_copy(update=alone), term.of, term.against)
    for name, term in plain:
        if isinstance(term, PolicyGradient) and term.targets():
            alone = term.model_copy(update={"sampler_importance_clip": None})
            return Teaching(name, alone, term.of, term.targets()[0])
    return None


def student_of(method: Method, teaching: Teaching | None) -> str:
    """The view whose answers are looked at: the term's, else the first with the student's weights."""
    if teaching is not None:
        return teaching.student
    return next(name for name, view in method.views.items() if isinstance(view.weights, StudentWeights))


def weights_name(view: View) -> str:
    """Whose weights look, in a few words."""
    match view.weights:
        case EmaWeights(teacher_update_rate=rate):
            return f"ema {rate:g}"
        case SyncedWeights(every=every):
            return f"synced {every}"
        case weights:
            return weights.kind


def lacking(context: Context, groups: Sequence[Group]) -> list[str | None]:
    """Why each group's problem cannot have ``context``, told by the problems alone; None where it can."""
    reasons = [_lacking(context, group) for group in groups]
    able = {group.problem.id for group, reason in zip(groups, reasons, strict=True) if reason is None}
    if shows_another(context) and len(able) < 2:
        return [reason or "needs another traced problem" for reason in reasons]
    return reasons


def shows_another(context: Context) -> bool:
    """Whether the context is of another problem than its row's."""
    if isinstance(context, DemonstrationContext):
        return context.of == "another_problem"
    return isinstance(context, OtherProblemContext)


def _lacking(context: Context, group: Group) -> str | None:
    if needs_solution(context) and not (group.problem.solution or "").strip():
        return "the problem has no solution to show"
    if needs_answer(context) and not group.problem.answer.strip():
        return "the problem has no answer to show"
    return None


def nothing_to_show(context: Context) -> str:
    """Why a context that is made of responses was empty."""
    match context:
        case PeerSuccessContext(feedback="never"):
            return "needs peers: no other answer to the problem passed"
        case PeerSuccessContext():
            return "needs peers: no other answer to the problem passed, and the grader said nothing of this one"
        case EnvironmentFeedbackContext():
            return "needs feedback: the grader said nothing of this answer"
        case SelfCritiqueContext():
            return "needs a critique: the model wrote none"
        case _:
            return "the view has no context for this answer"
