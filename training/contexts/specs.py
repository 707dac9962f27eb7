"""What a view sees beside the problem (values only; the behaviour is in the sibling modules)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec
from training.schedules import Share

Unit = Literal["tokens", "characters"]


class NoContext(Spec):
    """The bare problem, as the student sees it."""

    kind: Literal["none"] = "none"


class SolutionContext(Spec):
    """The problem's own worked solution (OPSD, section 3)."""

    kind: Literal["solution"] = "solution"


class AnswerContext(Spec):
    """The final answer alone."""

    kind: Literal["answer"] = "answer"


class PartialSolutionContext(Spec):
    """The first ``share`` of the solution, ⌊share · length⌋ units of it (USD's β). At 1 it is the whole solution."""

    kind: Literal["partial_solution"] = "partial_solution"
    share: Share = 1.0
    """The part of the solution that is shown (USD's β)."""
    unit: Unit = "tokens"
    """USD's text says characters and counts tokens; tokens is the reading here."""
    keep_answer: bool = True
    """Show the final answer after a cut solution too."""


class OverlapMaskedContext(Spec):
    """A prefix of the solution that is the shorter, the more of it the rollout has already (PAINT-style).

    With r = |Anch(y*) ∩ Anch(ŷ)| / |Anch(y*)|, the last m(r) = min_hidden + (max_hidden − min_hidden)·r of the
    solution is hidden. Anchors are the numbers, formulas and boxed answers of a text.
    """

    kind: Literal["overlap_masked"] = "overlap_masked"
    min_hidden: float = Field(0.0, ge=0, le=1)
    """Share hidden from the teacher when nothing overlaps."""
    max_hidden: float = Field(0.5, ge=0, le=1)
    """Share hidden when every anchor is in the rollout."""
    unit: Unit = "tokens"
    """What the share counts."""
    keep_answer: bool = True
    """Show the final answer after a cut solution too."""
    anchors: tuple[Literal["numbers", "formulas", "boxed"], ...] = ("numbers", "formulas", "boxed")
    """What counts as an anchor of a text."""


class PeerSuccessContext(Spec):
    """A successful rollout of the same group, and feedback on the row's own attempt (SDPO, section 3).

    A row that has neither is masked for the view. The peer is the first other rollout of the group with a reward of
    ``threshold`` or more, its thinking stripped.
    """

    kind: Literal["peer_success"] = "peer_success"
    feedback: Literal["never", "without_peer", "always"] = "without_peer"
    """Whether the environment's feedback on the row's own failed attempt is shown."""
    attempt: bool = False
    """Show the row's own failed attempt too (an ablation of SDPO)."""
    exclude_self: bool = True
    """False lets a successful rollout be its own demonstration."""
    threshold: float = 0.5
    """Reward from which a rollout is a success."""


class EnvironmentFeedbackContext(Spec):
    """What the environment says of the row's own attempt; rows without feedback are masked (VPD)."""

    kind: Literal["environment_feedback"] = "environment_feedback"
    attempt: bool = False
    """Show the attempt beside its feedback."""


class SelfCritiqueContext(Spec):
    """The policy's own criticism of the row's attempt, generated before the update (VPD)."""

    kind: Literal["self_critique"] = "self_critique"
    max_new_tokens: int = Field(512, gt=0)
    """Longest critique."""
    temperature: float = Field(1.0, ge=0)
    """Temperature that critiques are drawn at."""
    attempt: bool = False
    """Show the attempt beside its critique."""


class DemonstrationContext(Spec):
    """A solved example in the user's turn: the problem's own reference, or another training problem's (SDFT)."""

    kind: Literal["demonstration"] = "demonstration"
    of: Literal["own_reference", "another_problem"] = "own_reference"
    """Whose worked example is shown."""


class OtherProblemContext(Spec):
    """What belongs to the next problem of the batch: a negative control that looks privileged and is not."""

    kind: Literal["other_problem"] = "other_problem"
    shows: Literal["solution", "answer"] = "solution"
    """What of the other problem is shown."""


Context = Annotated[
    Annotated[
        NoContext
        | SolutionContext
        | AnswerContext
        | PartialSolutionContext
        | OverlapMaskedContext
        | PeerSuccessContext
        | EnvironmentFeedbackContext
        | SelfCritiqueContext
        | DemonstrationContext
        | OtherProblemContext,
        Field(discriminator="kind"),
    ],
    KindShorthand,
]
