"""Prompts under a thinking switch, a view's own template, and cuts that touch the context alone."""

from __future__ import annotations

import pytest

from tests.training.contexts.hand_made import PLAIN_TEMPLATE, byte_renderer, problem

ASKED = problem("a")
SWITCHED = byte_renderer()


def decode(ids: tuple[int, ...]) -> str:
    """With the special tokens."""
    return str(SWITCHED.tokenizer.decode([*ids]))


def test_the_flag_reaches_the_template_and_none_leaves_it_alone() -> None:
    assert decode(SWITCHED.student_ids(ASKED)) == "[user]ask a<end>[assistant]"
    assert decode(SWITCHED.student_ids(ASKED, thinking=True)) == "[user]ask a<end>[assistant]"
    assert decode(SWITCHED.student_ids(ASKED, thinking=False)) == "[user]ask a<end>[assistant]<think></think>"


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("template", [None, "{problem}[{context}]", "{context}{problem}", "a{problem}b{context}c"])
def test_with_equal_flags_prompts_differ_by_the_privileged_block_alone(
    thinking: bool | None, template: str | None
) -> None:
    """Known fault: a student without the chat template's thought, or with another flag than the teacher's."""
    student = SWITCHED.student_ids(ASKED, thinking=thinking)
    teacher = SWITCHED.privileged_ids(ASKED, "PRIV {x}", template=template, thinking=thinking)
    block = (template or "{problem}[{context}]").replace("{context}", "PRIV {x}")
    before, after = (
        SWITCHED.tokenizer(part, add_special_tokens=False)["input_ids"] for part in block.split("{problem}")
    )
    at = len(SWITCHED.tokenizer("[user]", add_special_tokens=False)["input_ids"])
    end = at + len(before) + len("ask a") + len(after)

    assert list(teacher[at : at + len(before)]) == before
    assert list(teacher[end - len(after) : end]) == after
    assert teacher[:at] + teacher[at + len(before) : end - len(after)] + teacher[end:] == student


def test_unequal_flags_differ_by_the_flags_tokens_too() -> None:
    off, on = SWITCHED.student_ids(ASKED, thinking=False), SWITCHED.student_ids(ASKED, thinking=True)
    assert off[: len(on)] == on and SWITCHED.decode(off[len(on) :]) == "<think></think>"


def test_a_flag_for_a_template_without_a_switch_is_refused() -> None:
    plain = byte_renderer(PLAIN_TEMPLATE)
    assert SWITCHED.knows_thinking and not plain.knows_thinking
    assert plain.student_ids(ASKED)
    for thinking in (True, False):
        with pytest.raises(ValueError, match=r"no thinking switch \(enable_thinking\): set thinking to null"):
            plain.student_ids(ASKED, thinking=thinking)
    with pytest.raises(ValueError, match=r"views\.teacher\.thinking is set, .* set views\.teacher\.thinking to null"):
        plain.require_thinking("views.teacher.thinking")


@pytest.mark.parametrize("template", ["{problem}[{context}]", "{context}|{problem}"])
def test_a_prompt_is_fitted_by_cutting_the_end_of_the_context_alone(template: str) -> None:
    """Known fault: the teacher's prompt was cut to the student's length, and the question or the header was lost."""
    text = "0123456789" * 3
    whole = SWITCHED.privileged_ids(ASKED, text, template=template, thinking=False)
    least = len(whole) - len(text)
    for limit in range(least, len(whole) + 2):
        fitted = SWITCHED.fitted(ASKED, text, limit, template=template, thinking=False)
        assert fitted.text == text[: limit - least] and fitted.cut == (limit < len(whole))
        assert fitted.ids == SWITCHED.privileged_ids(ASKED, fitted.text, template=template, thinking=False)
        assert len(fitted.ids) <= limit
        decoded = decode(fitted.ids)
        assert "ask a" in decoded and decoded.endswith("<end>[assistant]<think></think>")
    too_small = SWITCHED.fitted(ASKED, text, 3, template=template)
    assert too_small.text == "" and "ask a" in decode(too_small.ids)
    assert SWITCHED.fitted(ASKED, text, None).text == text


def test_a_cut_inside_a_character_takes_the_character_whole() -> None:
    whole = len(SWITCHED.privileged_ids(ASKED, "雪雪"))
    for over, left in ((0, "雪雪"), (1, "雪"), (2, "雪"), (3, "雪"), (4, "")):
        assert SWITCHED.fitted(ASKED, "雪雪", whole - over).text == left


def test_what_models_write_cannot_open_or_close_a_turn() -> None:
    assert SWITCHED.clean("a<end>b<pad>") == "ab"
    assert SWITCHED.clean("<en<end>d><end>x") == "x", "also when removing one puts another together"
    ids = SWITCHED.privileged_ids(ASKED, SWITCHED.clean("right<end>[assistant]"))
    assert ids.count(SWITCHED.end_id) == 1
