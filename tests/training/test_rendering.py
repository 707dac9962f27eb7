"""Prompts: student and teacher differ by the privileged block, and user text is never interpreted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from evaluation.benchmarks.addition import ADDITION
from evaluation.problems import Message, Problem
from training.base_models import BASE_MODELS
from training.rendering import Renderer, check_lengths, fill_template

TINY = BASE_MODELS["tiny-demo"]
HINT_TEMPLATE = TINY.privileged_template


def load(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    assert TINY.shipped is not None
    return load(TINY.shipped)


@pytest.fixture
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(tokenizer, HINT_TEMPLATE)


def problem(*contents: str, role: str = "user") -> Problem:
    prompt = tuple(Message.model_validate({"role": role, "content": content}) for content in contents)
    return Problem(id="p1", benchmark="test", split="train", prompt=prompt, answer="0")


def byte_tokenizer(template: str | None, *, end_is_pad: bool = True) -> Any:
    """Bytes as tokens, with a begin token that the tokenizer adds on its own, as Llama's does."""
    specials = {"<bos>": 0, "<end>": 1, "<unk>": 2}
    letters = {letter: index + 3 for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=specials | letters, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        eos_token="<end>",
        unk_token="<unk>",
        pad_token="<end>" if end_is_pad else None,
        chat_template=template,
    )


BOS_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_the_student_prompt_is_the_chat_template_s(renderer: Renderer, tokenizer: Any) -> None:
    asked = ADDITION.load("test")[0]
    messages = [{"role": "user", "content": asked.prompt[0].content}]
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert renderer.student_ids(asked) == tuple(expected)
    assert tokenizer.decode(renderer.student_ids(asked)) == f"<|user|>{asked.id}<|end|><|assistant|>"


def test_without_the_privileged_block_the_teacher_sees_the_student_s_prompt(renderer: Renderer, tokenizer: Any) -> None:
    for asked in ADDITION.load("test", limit=20):
        student, teacher = renderer.student_ids(asked), renderer.privileged_ids(asked, asked.solution)
        block = tokenizer(f"<|hint|>{asked.solution}", add_special_tokens=False)["input_ids"]
        start = teacher.index(block[0])
        assert teacher[start : start + len(block)] == tuple(block)
        assert teacher[:start] + teacher[start + len(block) :] == student
        assert renderer.privileged_ids(asked, None) == student


def test_context_enters_the_last_user_message_only(tokenizer: Any) -> None:
    chat = Problem(
        id="p",
        benchmark="test",
        split="train",
        prompt=(
            Message(role="user", content="1+1"),
            Message(role="assistant", content="2"),
            Message(role="user", content="2+2"),
        ),
        answer="4",
    )
    renderer = Renderer(tokenizer, HINT_TEMPLATE)
    assert tokenizer.decode(renderer.privileged_ids(chat, "4")) == (
        "<|user|>1+1<|end|><|assistant|>2<|end|><|user|>2+2<|hint|>4<|end|><|assistant|>"
    )


def test_one_begin_token_although_template_and_tokenizer_both_write_one() -> None:
    tokenizer = byte_tokenizer(BOS_TEMPLATE)
    assert tokenizer("a")["input_ids"].count(0) == 1, "this tokenizer adds a begin token by itself"
    renderer = Renderer(tokenizer, "Hint: {context}\n\n{problem}", system_prompt="Be brief.")
    for ids in (renderer.student_ids(problem("hé")), renderer.privileged_ids(problem("hé"), "{x}")):
        assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    assert renderer.reference_ids("a").count(0) == 0
    text = tokenizer.decode(renderer.privileged_ids(problem("q"), "c"))
    assert text == "<bos>[system]Be brief.<end>[user]Hint: c\n\nq<end>[assistant]"


@given(st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_user_text_is_inserted_and_never_interpreted(question: str, context: str) -> None:
    assert fill_template("A{problem}B{context}C", question, context) == f"A{question}B{context}C"
    assert fill_template("{context}|{problem}", question, context) == f"{context}|{question}"


@pytest.mark.parametrize("text", ["{context}", "{problem}", "{0}", "{", "}}", "%s", "\\1", "{{ messages }}", "{% x %}"])
def test_braces_and_template_syntax_survive(text: str) -> None:
    tokenizer = byte_tokenizer(BOS_TEMPLATE)
    renderer = Renderer(tokenizer, "<{context}> {problem}")
    rendered = tokenizer.decode(renderer.privileged_ids(problem(text), text))
    assert rendered == f"<bos>[user]<{text}> {text}<end>[assistant]"


def test_end_ids_are_those_of_tokenizer_and_generation_config(tokenizer: Any) -> None:
    assert Renderer(tokenizer, HINT_TEMPLATE).end_ids == {1}
    assert Renderer(tokenizer, HINT_TEMPLATE, None, GenerationConfig(eos_token_id=[3, 4])).end_ids == {1, 3, 4}
    assert Renderer(tokenizer, HINT_TEMPLATE, None, GenerationConfig(eos_token_id=3)).end_ids == {1, 3}
    assert Renderer(tokenizer, HINT_TEMPLATE, None, GenerationConfig()).end_ids == {1}


def test_pad_may_equal_the_end_and_a_reference_still_ends(tokenizer: Any) -> None:
    assert (Renderer(tokenizer, HINT_TEMPLATE).pad_id, Renderer(tokenizer, HINT_TEMPLATE).end_id) == (0, 1)
    for end_is_pad in (True, False):
        renderer = Renderer(byte_tokenizer(BOS_TEMPLATE, end_is_pad=end_is_pad), "{context}{problem}")
        assert renderer.pad_id == renderer.end_id == 1
        ids = renderer.reference_ids("ab")
        assert len(ids) == 3 and ids[-1] == 1 and ids.count(1) == 1
        assert renderer.decode(ids) == "ab"


def test_a_reference_is_what_a_student_would_sample(renderer: Renderer) -> None:
    asked = ADDITION.load("test")[0]
    assert asked.solution is not None
    ids = renderer.reference_ids(asked.solution)
    assert len(ids) == 32 and ids[-1] in renderer.end_ids
    assert renderer.decode(ids) == asked.solution
    with pytest.raises(ValueError, match="empty"):
        renderer.reference_ids("")


@pytest.mark.parametrize("asked", [problem(), problem(""), problem("  \n")])
def test_an_empty_prompt_is_refused(renderer: Renderer, asked: Problem) -> None:
    with pytest.raises(ValueError, match="'p1' of test has an empty prompt"):
        renderer.student_ids(asked)


def test_a_prompt_that_does_not_end_with_the_user_is_refused(renderer: Renderer) -> None:
    with pytest.raises(ValueError, match="'p1': the prompt ends with role 'assistant'"):
        renderer.student_ids(problem("1+1", role="assistant"))


def test_what_the_chat_template_refuses_names_the_problem(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer, HINT_TEMPLATE, system_prompt="be brief")
    with pytest.raises(ValueError, match=r"problem 'p1': the chat template refuses .* not system"):
        renderer.student_ids(problem("1+1"))


def test_a_character_without_a_token_is_named(renderer: Renderer) -> None:
    with pytest.raises(ValueError, match="problem 'p1': the model's tokenizer has no token for 'W'"):
        renderer.student_ids(problem("What is 1+1?"))
    with pytest.raises(ValueError, match=r"reference response: .* no token for '\\n'"):
        renderer.reference_ids("1\n2")
    byte_level = Renderer(byte_tokenizer(BOS_TEMPLATE), "{context}{problem}")
    assert byte_level.student_ids(problem("What is 雪\n?"))


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    assert TINY.shipped is not None
    shutil.copytree(TINY.shipped, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="has no chat template: use an instruction-tuned model"):
        Renderer(load(tmp_path / "model"), HINT_TEMPLATE)


def test_a_model_without_an_end_token_is_refused(tmp_path: Path) -> None:
    assert TINY.shipped is not None
    shutil.copytree(TINY.shipped, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer_config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "eos_token"}))
    with pytest.raises(ValueError, match="has no eos_token"):
        Renderer(load(tmp_path / "model"), HINT_TEMPLATE)


@pytest.mark.parametrize("template", ["{context}", "{problem}", "no field", "{problem}{context}{context}"])
def test_a_privileged_template_without_its_fields_is_refused(tokenizer: Any, template: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        Renderer(tokenizer, template)


def test_lengths_are_checked_before_any_work(renderer: Renderer) -> None:
    problems = ADDITION.load("test", limit=3)
    contexts = [problem.solution for problem in problems]
    # A prompt has 10 tokens and with its solution 42.
    check_lengths(renderer, problems, None, 50, 40)
    check_lengths(renderer, problems, contexts, 82, 40)
    with pytest.raises(ValueError, match=r"its prompt has 10 tokens; with 40 new tokens that is 50.*takes 49"):
        check_lengths(renderer, problems, None, 49, 40)
    message = rf"problem '{problems[1].id.replace('+', '[+]')}' of addition: its prompt with context has 42 tokens"
    with pytest.raises(ValueError, match=message):
        check_lengths(renderer, problems, [None, *contexts[1:]], 81, 40)
