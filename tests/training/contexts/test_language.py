from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.contexts.hand_made import MARKED
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.tokenizer import CHARACTERS
from training.contexts.language import BLOCK_KINDS, COMPACT, NATURAL_LANGUAGE, Block, ContextLanguage, fill


def test_blocks_stand_in_the_order_of_the_language_whatever_order_they_come_in() -> None:
    blocks: list[Block] = [("feedback", "f"), ("attempt", "t"), ("peer_success", "s")]

    assert MARKED.compose(blocks) == "<peer_success>s|<attempt>t|<feedback>f"
    assert MARKED.compose(blocks[::-1]) == MARKED.compose(blocks)
    assert MARKED.compose([]) is None


def test_the_natural_words_after_a_failed_attempt_keep_sdpos_order() -> None:
    """User's text, correct solution, feedback on the failed attempt, one instruction (SDPO's template)."""
    blocks: list[Block] = [("feedback", "FEEDBACK"), ("peer_success", "SOLUTION")]
    turn, text = NATURAL_LANGUAGE.turn(blocks), NATURAL_LANGUAGE.compose(blocks)
    assert turn is not None and text is not None

    rendered = fill(turn, problem="QUESTION", context=text)

    places = [rendered.index(part) for part in ("QUESTION", "SOLUTION", "FEEDBACK", "Now solve the original question")]
    assert places == sorted(places) and rendered.startswith("QUESTION")
    assert rendered.count("Now solve") == 1


def test_a_solution_alone_stands_in_the_models_own_template_as_it_is() -> None:
    for language in (NATURAL_LANGUAGE, CONTEXT_LANGUAGE):
        assert language.compose([("solution", "1+1=2")]) == "1+1=2"
        assert language.turn([("solution", "1+1=2")]) is None


def test_every_turn_and_template_has_its_fields_once() -> None:
    for language in (NATURAL_LANGUAGE, CONTEXT_LANGUAGE):
        assert set(language.templates) == set(BLOCK_KINDS)
        assert all(template.count("{text}") == 1 for template in language.templates.values())
        assert all(turn.count("{problem}") == turn.count("{context}") == 1 for turn in language.turns.values())
    assert set(NATURAL_LANGUAGE.turns) == set(BLOCK_KINDS) - {"solution", "partial_solution"}


def test_a_template_of_the_users_own_takes_every_context() -> None:
    assert all(NATURAL_LANGUAGE.in_one_turn().turn([(kind, "x")]) is None for kind in BLOCK_KINDS)


def test_the_compact_marks_and_the_tiny_language_need_no_character_outside_the_tiny_tokenizer() -> None:
    bare = ContextLanguage(templates={}, separator=" ", mask="?", answer_marker="#")
    for language in (bare, CONTEXT_LANGUAGE):
        written = [language.block(kind, "1") for kind in BLOCK_KINDS]
        written += [language.separator, language.mask, language.answer_marker, language.worked_example("1+1", "2")]
        assert set("".join(written)) <= set(CHARACTERS)
    assert set(COMPACT) == set(BLOCK_KINDS)


def test_an_unknown_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no context block 'hint'"):
        MARKED.block("hint", "x")  # type: ignore[arg-type]


@given(st.text(max_size=12), st.text(max_size=12))
@settings(max_examples=80, deadline=None)
def test_inserted_texts_are_never_read_as_fields(problem: str, text: str) -> None:
    assert fill("A{problem}B{text}C", problem=problem, text=text) == f"A{problem}B{text}C"
    assert fill("{text}{problem}", problem=problem, text=text) == text + problem


@pytest.mark.parametrize("text", ["{text}", "{problem}{context}", "{", "}}", "{0}", "%s"])
def test_braces_in_texts_survive_in_every_block(text: str) -> None:
    for kind in BLOCK_KINDS:
        assert MARKED.block(kind, text) == f"<{kind}>{text}"
    assert MARKED.worked_example(text, text) == f"{text}->{text}"
    assert MARKED.guidance([text], []) == text


def test_a_field_in_one_inserted_text_does_not_take_the_other() -> None:
    assert MARKED.worked_example("{text}", "solution") == "{text}->solution"
    assert fill("{problem} {context}", problem="{context}", context="{problem}") == "{context} {problem}"


def test_facts_guidance_and_steps() -> None:
    assert CONTEXT_LANGUAGE.facts(["1+1=2", "2+2=4"]) == "1+1=2,2+2=4"
    assert CONTEXT_LANGUAGE.guidance(["1+1=2"], ["2+2=5"]) == "do 1+1=2,not 2+2=5"
    assert CONTEXT_LANGUAGE.steps("4+8+0=12;2+7+1=10#102") == ("4+8+0=12", "2+7+1=10")
