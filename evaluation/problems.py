"""What is asked and what came of it: problems, messages, grades."""

from __future__ import annotations

from typing import Literal

from evaluation.spec import Spec

Role = Literal["system", "user", "assistant", "tool"]
Split = Literal["train", "validation", "test"]
Verdict = Literal["pass", "fail", "not_scored"]


class Message(Spec):
    """One chat message."""

    role: Role
    content: str


class Problem(Spec):
    """One question with its verified answer.

    ``solution`` is a worked reference (privileged: never in ``prompt``), ``tests`` are programs that a code answer
    must pass, ``cluster`` names the passage or template a problem shares with others (for clustered errors).
    """

    id: str
    benchmark: str
    split: Split
    prompt: tuple[Message, ...]
    answer: str
    solution: str | None = None
    tests: tuple[str, ...] | None = None
    cluster: str | None = None


class Grade(Spec):
    """The judgement of one answer by one grader version.

    ``verdict`` is ``not_scored`` when the grader itself failed (time-out, crash, missing sandbox): ``error`` then
    says why, ``score`` is None, and the answer counts neither as right nor as wrong.
    ``well_formed`` says whether the strict answer format was kept; ``lenient`` is the verdict under lenient
    extraction where the grader has one.
    """

    verdict: Verdict
    score: float | None
    grader: str
    version: str
    extracted: str | None = None
    feedback: str | None = None
    error: str | None = None
    well_formed: bool | None = None
    lenient: Verdict | None = None
