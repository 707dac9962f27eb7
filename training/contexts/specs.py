"""What a view sees beside the problem (values only; the behaviour is in the sibling modules)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evaluation.spec import KindShorthand, Spec


class NoContext(Spec):
    """The bare problem, as the student sees it."""

    kind: Literal["none"] = "none"


class SolutionContext(Spec):
    """The problem's own worked solution (OPSD, section 3)."""

    kind: Literal["solution"] = "solution"


class OtherProblemContext(Spec):
    """The solution of the next problem of the batch: a negative control that looks privileged and is not."""

    kind: Literal["other_problem"] = "other_problem"


Context = Annotated[
    Annotated[NoContext | SolutionContext | OtherProblemContext, Field(discriminator="kind")], KindShorthand
]
