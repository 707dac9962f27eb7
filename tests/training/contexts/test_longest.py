"""The bound that lengths are checked with, against contexts really built from rollouts of the longest kind."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.training.contexts.hand_made import MARKED, byte_renderer, problem, rollout
from training.contexts.build import build_contexts
from training.contexts.longest import longest_context
from training.contexts.rows import ContextRow
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

BYTES = byte_renderer()
LONGEST = 9
PROBLEMS = [
    problem("a", solution="1 2 3"),
    problem("bb", solution="long 雪 one", answer="77"),
    problem("c", solution="x"),
]


def rows_of(texts: tuple[str, ...]) -> list[ContextRow]:
    rows = []
    for group, one in enumerate(PROBLEMS):
        for place, written in enumerate(texts):
            row = rollout(written, float(place == 0), group)
            rows.append(ContextRow(one, group, row.text, row.token_ids, row.reward, row.grade))
    return rows


def contexts() -> list[Context]:
    both = (False, True)
    found: list[Context] = [SolutionContext(), AnswerContext(), DemonstrationContext(), OtherProblemContext()]
    found += [OtherProblemContext(shows="answer"), DemonstrationContext(of="another_problem")]
    for keep in both:
        found += [PartialSolutionContext(share=k / 10, keep_answer=keep) for k in range(11)]
        found += [OverlapMaskedContext(keep_answer=keep)]
    modes: Any = ("never", "without_peer", "always")
    found += [PeerSuccessContext(feedback=mode, attempt=attempt) for mode, attempt in itertools.product(modes, both)]
    found += [EnvironmentFeedbackContext(attempt=attempt) for attempt in both]
    found += [SelfCritiqueContext(max_new_tokens=5, attempt=attempt) for attempt in both]
    return found


@pytest.mark.parametrize("context", contexts(), ids=lambda context: context.kind)
def test_no_context_is_longer_than_the_bound(context: Context) -> None:
    bound = longest_context(context, PROBLEMS, MARKED, BYTES, LONGEST)
    rows = rows_of(("y" * LONGEST, "x" * LONGEST, "2" * LONGEST))
    built = build_contexts(context, rows, MARKED, BYTES, dict.fromkeys(range(len(rows)), "z" * 5))
    lengths = [BYTES.count(one.text) for one in built if one is not None and one.text is not None]
    limits = [BYTES.count(bound.texts[row.group]) + bound.further_tokens for row in rows]
    for one, limit in zip(built, limits, strict=True):
        assert one is None or one.text is None or BYTES.count(one.text) <= limit
    reached = max(lengths, default=0)
    exact = not isinstance(context, PartialSolutionContext | OverlapMaskedContext | EnvironmentFeedbackContext)
    if exact and getattr(context, "feedback", "never") != "always":
        assert reached == max(limits), "and the bound is reached"


def test_the_longest_other_problem_is_the_one_with_most_tokens() -> None:
    bound = longest_context(OtherProblemContext(), PROBLEMS, MARKED, BYTES, LONGEST)
    assert bound.texts == ["<solution>long 雪 one"] * 3 and bound.further_tokens == 0


def test_no_context_has_no_longest() -> None:
    with pytest.raises(ValueError, match="without context"):
        longest_context(NoContext(), PROBLEMS, MARKED, BYTES, LONGEST)
