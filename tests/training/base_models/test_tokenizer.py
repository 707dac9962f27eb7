"""One character, one token; the chat template; an ordinary tokenizer for transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from transformers import AutoTokenizer

from training.base_models import BASE_MODELS
from training.base_models.tokenizer import CHARACTERS, SPECIALS, VOCABULARY, build_tokenizer, encode, question_ids


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(256).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_every_character_is_one_token_and_comes_back(tokenizer: Any) -> None:
    assert len(tokenizer) == len(VOCABULARY) == 56
    ids = tokenizer(CHARACTERS, add_special_tokens=False)["input_ids"]
    assert ids == encode(CHARACTERS) == list(range(6, 56))
    assert tokenizer.decode(ids) == CHARACTERS


def test_special_tokens_are_distinct_and_known(tokenizer: Any) -> None:
    assert tokenizer.convert_tokens_to_ids(list(SPECIALS)) == [0, 1, 2, 3, 4, 5]
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token) == ("<|pad|>", "<|end|>", None)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.decode([2, 10, 5, 11, 1], skip_special_tokens=True) == "45"


def test_the_chat_template(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "824+078"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>824+078<|end|><|assistant|>"
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ids == question_ids("824+078")
    conversation = [*messages, {"role": "assistant", "content": ">1"}, {"role": "tool", "content": "8,0"}]
    assert tokenizer.apply_chat_template(conversation, tokenize=False) == (
        "<|user|>824+078<|end|><|assistant|>>1<|end|><|tool|>8,0<|end|>"
    )


def test_the_hint_token_is_read_inside_a_user_message(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "824+078<|hint|>4+8+0=12"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ids == question_ids("824+078", "4+8+0=12")
    assert ids.count(VOCABULARY["<|hint|>"]) == 1


def test_a_role_without_a_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(TemplateError, match="user, assistant and tool, not system"):
        tokenizer.apply_chat_template([{"role": "system", "content": "hello"}])


@pytest.mark.parametrize("name", ["tiny-demo", "tiny-small", "tiny-full"])
def test_the_shipped_tokenizers_are_this_one(name: str, tmp_path: Path) -> None:
    shipped = BASE_MODELS[name].shipped
    assert shipped is not None
    build_tokenizer(256).save_pretrained(tmp_path)
    for file in ("tokenizer.json", "chat_template.jinja"):
        assert (shipped / file).read_text() == (tmp_path / file).read_text()
