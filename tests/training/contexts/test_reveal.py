"""Partial and overlap-masked solutions, to the token and to the character."""

from __future__ import annotations

import pytest

from tests.training.contexts.hand_made import MARKED, byte_renderer, problem
from training.contexts.build import build_contexts
from training.contexts.reveal import first_part
from training.contexts.rows import ContextRow, PrivilegedContext
from training.contexts.specs import (
    AnswerContext,
    Context,
    OverlapMaskedContext,
    PartialSolutionContext,
    SolutionContext,
)
from training.schedules import Linear

BYTES = byte_renderer()


def built(context: Context, row: ContextRow) -> PrivilegedContext:
    found = build_contexts(context, [row], MARKED, BYTES)[0]
    assert found is not None
    return found


def asked(solution: str, answer: str = "7") -> ContextRow:
    return ContextRow(problem(solution=solution, answer=answer), 0)


def test_a_share_of_one_is_the_solution_context_and_none_of_it_the_answer_or_nothing() -> None:
    row = asked("one two three")

    assert built(PartialSolutionContext(share=1.0), row) == built(SolutionContext(), row)
    assert built(PartialSolutionContext(share=0.0), row) == built(AnswerContext(), row)
    nothing = built(PartialSolutionContext(share=0.0, keep_answer=False), row)
    assert nothing.text is None and nothing.turn is None
    # ⌊0.01 · 13⌋ = 0: as nothing
    assert built(PartialSolutionContext(share=0.01), row) == built(AnswerContext(), row)


@pytest.mark.parametrize(("share", "shown"), [(0.3, "abc"), (0.39, "abc"), (0.4, "abcd"), (0.999, "abcdefghi")])
def test_the_first_floor_of_share_times_length(share: float, shown: str) -> None:
    for unit in ("tokens", "characters"):
        row = asked("abcdefghij")
        kept = built(PartialSolutionContext.model_validate({"share": share, "unit": unit}), row)
        bare = built(PartialSolutionContext.model_validate({"share": share, "unit": unit, "keep_answer": False}), row)
        assert kept.text == f"<partial_solution>{shown}~#7"
        assert bare.text == f"<partial_solution>{shown}~"
        assert not kept.cut, "what is hidden on purpose is not cut to fit"


def test_every_exact_share_counts_exactly() -> None:
    """⌊share · length⌋ for shares k/100 of a text of 100: rounding of the product must not lose a unit."""
    text = "".join(chr(ord("a") + index % 26) for index in range(100))
    for unit in ("tokens", "characters"):
        assert [len(first_part(text, k / 100, unit, BYTES)) for k in range(101)] == [*range(101)]  # type: ignore[arg-type]


def test_a_token_inside_a_character_is_left_out() -> None:
    text = "aé雪b"  # 1 + 2 + 3 + 1 bytes, each a token
    shown = [first_part(text, count / 7, "tokens", BYTES) for count in range(8)]
    assert shown == ["", "a", "a", "aé", "aé", "aé", "aé雪", text]
    assert [BYTES.prefix(text, count) for count in range(8)] == shown


def test_tokens_and_characters_differ_where_characters_take_several_tokens() -> None:
    text = "雪雪雪雪"
    assert first_part(text, 0.5, "characters", BYTES) == "雪雪"
    assert first_part(text, 0.25, "tokens", BYTES) == "雪"
    assert first_part("雪a", 0.5, "characters", BYTES) == "雪"
    assert first_part("雪a", 0.5, "tokens", BYTES) == "", "two of four tokens end inside the character"


def test_a_schedule_is_resolved_before_contexts_are_built() -> None:
    with pytest.raises(TypeError, match=r"Method\.at"):
        built(PartialSolutionContext(share=Linear(start=0, end=1, updates=2)), asked("a"))


def test_overlap_hides_the_more_the_more_of_the_reference_is_there() -> None:
    # The reference has the anchors 1, 2, 3, 4 and ten characters: ⌊(1 − r/2) · 10⌋ of them are shown.
    solution = "1 2 3 4 xx"
    context = OverlapMaskedContext(min_hidden=0.0, max_hidden=0.5, anchors=("numbers",), unit="characters")
    expected = {
        "9": f"<solution>{solution}",
        "1 2": "<partial_solution>1 2 3 4~#7",
        "4 3 2 1": "<partial_solution>1 2 3~#7",
    }
    for text, shown in expected.items():
        assert built(context, ContextRow(problem(solution=solution), 0, text)).text == shown


def test_a_reference_without_anchors_is_hidden_as_little_as_can_be() -> None:
    row = ContextRow(problem(solution="abcdefghij"), 0, "anything 1 2 3")
    assert built(OverlapMaskedContext(), row).text == "<solution>abcdefghij"
    assert built(OverlapMaskedContext(min_hidden=0.2), row).text == "<partial_solution>abcdefgh~#7"
    assert built(OverlapMaskedContext(min_hidden=1.0, max_hidden=1.0), row).text == "<answer>7"
    bare = OverlapMaskedContext(min_hidden=1.0, max_hidden=1.0, keep_answer=False)
    assert built(bare, row).text is None


def test_overlap_needs_a_rollout_and_texts_must_be_there() -> None:
    with pytest.raises(ValueError, match="'a' has no rollout"):
        built(OverlapMaskedContext(), ContextRow(problem(), 0))
    with pytest.raises(ValueError, match=r"problem 'a' \(toy, train\) has no answer"):
        built(PartialSolutionContext(share=0.5), ContextRow(problem(answer=" "), 0))
    with pytest.raises(ValueError, match=r"problem 'a' \(toy, train\) has no solution"):
        built(PartialSolutionContext(), ContextRow(problem(solution=None), 0))
