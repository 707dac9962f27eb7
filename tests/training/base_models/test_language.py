"""The language of the tiny models' contexts: complete, inside their characters, as documented."""

from __future__ import annotations

import subprocess
import sys

import pytest

from training.base_models import BASE_MODELS
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.tokenizer import CHARACTERS
from training.contexts.language import BLOCK_KINDS


def test_every_kind_of_block_has_a_template_that_the_tokenizer_can_write() -> None:
    assert set(CONTEXT_LANGUAGE.templates) == set(BLOCK_KINDS)
    marks = [CONTEXT_LANGUAGE.separator, CONTEXT_LANGUAGE.mask, CONTEXT_LANGUAGE.answer_marker]
    marks += [CONTEXT_LANGUAGE.step_separator, CONTEXT_LANGUAGE.row_separator, CONTEXT_LANGUAGE.all_right]
    templates = [*CONTEXT_LANGUAGE.templates.values(), CONTEXT_LANGUAGE.do, CONTEXT_LANGUAGE.avoid]
    for template in templates:
        assert template.count("{text}") == 1
        marks.append(template.replace("{text}", ""))
    assert set("".join(marks)) <= set(CHARACTERS)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (CONTEXT_LANGUAGE.block("solution", "4+8+0=12#12"), "4+8+0=12#12"),
        (CONTEXT_LANGUAGE.block("answer", "0902"), "#0902"),
        (CONTEXT_LANGUAGE.block("partial_solution", CONTEXT_LANGUAGE.partial("4+8")), "4+8?"),
        (CONTEXT_LANGUAGE.block("partial_solution", CONTEXT_LANGUAGE.partial("4+8", "0902")), "4+8?#0902"),
        (CONTEXT_LANGUAGE.block("facts", CONTEXT_LANGUAGE.facts(["9*7=3", "3+5=8"])), "f:9*7=3,3+5=8"),
        (CONTEXT_LANGUAGE.guidance(["9*7=3"], ["3+5=7", "8+3=0"]), "do 9*7=3,not 3+5=7,not 8+3=0"),
        (
            CONTEXT_LANGUAGE.compose([("feedback", "3+5=8"), ("peer_success", "9*7=3#3"), ("attempt", "9*7=4#4")]),
            "ok:9*7=3#3 no:9*7=4#4 fix:3+5=8",
        ),
    ],
)
def test_blocks_are_written_as_documented(written: str, expected: str) -> None:
    assert written == expected


def test_the_steps_of_a_solution_are_its_facts() -> None:
    assert CONTEXT_LANGUAGE.steps("9*7=3;3+5=8;8+3=1#1") == ("9*7=3", "3+5=8", "8+3=1")


def test_tiny_models_have_the_language_and_others_have_none() -> None:
    spoken = {name: entry.language is CONTEXT_LANGUAGE for name, entry in BASE_MODELS.items()}
    assert spoken.pop("smollm2-135m-instruct") is False
    assert all(spoken.values())


def test_the_language_and_the_catalogue_load_no_torch() -> None:
    code = (
        "import sys, training.base_models, training.base_models.language, training.base_models.contextual_items;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
