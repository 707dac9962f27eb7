"""Contexts made of rollouts, against groups written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.contexts.hand_made import MARKED, byte_renderer, problem, rollout
from training.contexts.attempts import auxiliary_requests, auxiliary_sampling
from training.contexts.build import build_contexts
from training.contexts.rows import ContextRow, strip_thinking
from training.contexts.specs import (
    EnvironmentFeedbackContext,
    NoContext,
    PeerSuccessContext,
    SelfCritiqueContext,
    SolutionContext,
)

BYTES = byte_renderer()


def decode(ids: tuple[int, ...]) -> str:
    """With the special tokens."""
    return str(BYTES.tokenizer.decode([*ids]))


def texts(context: Any, rows: list[ContextRow], critiques: dict[int, str] | None = None) -> list[str | None]:
    """The texts; None where the row is masked."""
    built = build_contexts(context, rows, MARKED, BYTES, critiques)
    assert all(one is None or one.text is not None for one in built)
    assert all(one is None or one.source == row.problem.id for one, row in zip(built, rows, strict=True))
    return [None if one is None else one.text for one in built]


def peers(**how: Any) -> PeerSuccessContext:
    return PeerSuccessContext.model_validate({"feedback": "never", **how})


MIXED = [rollout("wrong0", 0.0), rollout("right1", 1.0), rollout("wrong2", 0.0), rollout("right3", 1.0)]


def test_the_peer_is_the_first_other_success_of_the_group() -> None:
    first, third = "<peer_success>right1", "<peer_success>right3"
    assert texts(peers(), MIXED) == [first, third, first, first]
    assert texts(peers(), MIXED[::-1]) == [first, third, third, third], "first in the order of the rows"
    assert texts(peers(exclude_self=False), MIXED) == [first] * 4


def test_groups_do_not_see_each_other_and_may_be_ragged_and_interleaved() -> None:
    rows = [
        rollout("a0", 0.0, group=0),
        rollout("b0", 1.0, group=1),
        rollout("a1", 1.0, group=0),
        rollout("c0", 1.0, group=2),
        rollout("b1", 0.0, group=1),
        rollout("a2", 0.0, group=0),
    ]
    assert texts(peers(), rows) == ["<peer_success>a1", None, None, None, "<peer_success>b0", "<peer_success>a1"]


def test_one_problem_drawn_twice_is_two_groups() -> None:
    rows = [rollout("right", 1.0, group=0, name="same"), rollout("wrong", 0.0, group=1, name="same")]
    assert texts(peers(), rows) == [None, None]


def test_all_right_all_wrong_and_not_scored() -> None:
    right = [rollout(f"r{index}", 1.0) for index in range(3)]
    assert texts(peers(), right) == ["<peer_success>r1", "<peer_success>r0", "<peer_success>r0"]
    wrong = [rollout(f"w{index}", 0.0) for index in range(3)]
    assert texts(peers(), wrong) == [None] * 3
    unscored = [rollout(f"u{index}", None, feedback="the grader broke") for index in range(3)]
    assert texts(peers(feedback="always"), unscored) == [None] * 3
    beside = [rollout("u", None, feedback="the grader broke"), rollout("r", 1.0)]
    assert texts(peers(feedback="always"), beside) == ["<peer_success>r", None]


def test_duplicates_of_a_success_are_peers_of_each_other() -> None:
    rows = [rollout("same", 1.0), rollout("same", 1.0), rollout("other", 0.0)]
    assert texts(peers(), rows) == ["<peer_success>same"] * 3


def test_the_threshold_is_met_by_equality_and_reads_the_reward() -> None:
    rows = [rollout("half", 0.5), rollout("wrong", 0.0)]
    assert texts(peers(), rows) == [None, "<peer_success>half"]
    assert texts(peers(threshold=0.51), rows) == [None, None]
    negative = [
        ContextRow(row.problem, 0, row.text, row.token_ids, reward, row.grade)
        for row, reward in zip(rows, (1.0, -1.0), strict=True)
    ]
    assert texts(peers(threshold=1.0), negative) == [None, "<peer_success>half"]


def test_when_feedback_is_shown() -> None:
    rows = [rollout("w0", 0.0, feedback="F0"), rollout("r1", 1.0), rollout("w2", 0.0, group=1, feedback="F2")]
    assert texts(peers(feedback="never"), rows) == ["<peer_success>r1", None, None]
    assert texts(peers(feedback="without_peer"), rows) == ["<peer_success>r1", None, "<feedback>F2"]
    assert texts(peers(feedback="always"), rows) == ["<peer_success>r1|<feedback>F0", None, "<feedback>F2"]


def test_feedback_on_an_attempt_that_passed_or_blank_feedback_is_none() -> None:
    rows = [rollout("r", 1.0, feedback="well done"), rollout("w", 0.0, group=1, feedback=" \n")]
    assert texts(peers(feedback="always"), rows) == [None, None]
    assert texts(EnvironmentFeedbackContext(), rows) == [None, None]


def test_the_failed_attempt_goes_with_what_else_is_shown() -> None:
    rows = [rollout("w0", 0.0, feedback="F0"), rollout("r1", 1.0), rollout("r2", 1.0), rollout("w3", 0.0, group=1)]
    assert texts(peers(feedback="always", attempt=True), rows) == [
        "<peer_success>r1|<attempt>w0|<feedback>F0",
        "<peer_success>r2",  # it did not fail
        "<peer_success>r1",
        None,  # an attempt alone is no context
    ]
    assert texts(EnvironmentFeedbackContext(attempt=True), rows)[0] == "<attempt>w0|<feedback>F0"
    assert texts(EnvironmentFeedbackContext(), rows) == ["<feedback>F0", None, None, None]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a\nb</think>\n\nanswer", "answer"),
        ("thought that the prompt opened</think>answer", "answer"),
        ("<think>cut off", ""),
        ("<think></think>answer<think>more</think>", "answer"),
        ("no thinking", "no thinking"),
        ("<think>a</think>b</think>c", "c"),
        ("", ""),
    ],
)
def test_thinking_is_stripped(text: str, left: str) -> None:
    assert strip_thinking(text) == left


def test_a_success_that_is_all_thinking_is_passed_over() -> None:
    rows = [rollout("w", 0.0), rollout("<think>only", 1.0), rollout("<think>x</think>right", 1.0)]
    assert texts(peers(), rows) == ["<peer_success>right", "<peer_success>right", None]


def test_special_tokens_and_braces_in_rollouts_and_feedback() -> None:
    rows = [rollout("{problem} <end>w", 0.0, feedback="{context} <<end>end>f"), rollout("{text}<pad> {0}", 1.0)]
    assert texts(peers(feedback="always", attempt=True), rows)[0] == (
        "<peer_success>{text} {0}|<attempt>{problem} w|<feedback>{context} f"
    )


def test_critiques_by_their_row() -> None:
    rows = [rollout("w0", 0.0), rollout("r1", 1.0), rollout("w2", 0.0)]
    said = {0: "<think>hm</think>step 1", 1: "fine", 2: "<think>too long"}
    assert texts(SelfCritiqueContext(), rows, said) == ["<critique>step 1", "<critique>fine", None]
    assert texts(SelfCritiqueContext(attempt=True), rows, said) == [
        "<attempt>w0|<critique>step 1",
        "<attempt>r1|<critique>fine",
        None,
    ]
    assert texts(SelfCritiqueContext(), rows, {2: "late"}) == [None, None, "<critique>late"]
    with pytest.raises(ValueError, match="auxiliary_requests"):
        texts(SelfCritiqueContext(), rows)


def test_requests_ask_about_each_attempt_and_about_nothing_else() -> None:
    rows = [
        rollout("w0", 0.0),
        rollout("<think>only", 0.0),
        rollout("<think>x</think>r2", 1.0),
        ContextRow(problem(), 3),
    ]

    requests = auxiliary_requests(SelfCritiqueContext(), rows, MARKED, BYTES, thinking=False)

    assert [request.row for request in requests] == [0, 2]
    assert [decode(request.prompt_ids) for request in requests] == [
        "[user]ask p0[<critique_request>w0]<end>[assistant]<think></think>",
        "[user]ask p0[<critique_request>r2]<end>[assistant]<think></think>",
    ]
    for other in (NoContext(), SolutionContext(), PeerSuccessContext(), EnvironmentFeedbackContext()):
        assert auxiliary_requests(other, rows, MARKED, BYTES) == [] and auxiliary_sampling(other) is None


def test_a_request_leaves_the_critique_its_room() -> None:
    whole = byte_renderer(context_length=1000)
    rows = [rollout("x" * 40, 0.0)]
    context = SelfCritiqueContext(max_new_tokens=20, temperature=0.5)
    ids = auxiliary_requests(context, rows, MARKED, whole)[0].prompt_ids

    tight = auxiliary_requests(context, rows, MARKED, byte_renderer(context_length=len(ids) + 20 - 5))[0].prompt_ids

    assert decode(tight) == decode(ids).replace("x" * 40, "x" * 35)
    params = auxiliary_sampling(context)
    assert params is not None and (params.max_new_tokens, params.temperature) == (20, 0.5)
