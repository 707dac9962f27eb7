"""Finding final answers and code blocks in text."""

from __future__ import annotations

import pytest

from evaluation.grading.extraction import after_hashes, answer_is, boxed, fenced_code, strict_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{7}", "7"),
        ("$\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{3} then \\boxed{4}", "4"),
        ("\\boxed{3} then \\boxed{4", "3"),
        ("\\boxed{\\boxed{5}}", "5"),
        ("} { \\boxed{6} }", "6"),
        ("\\boxed{a\\}b}", "a\\}b"),
        ("\\boxed{ {7}", None),
        ("\\boxed 7", "7"),
        ("\\fbox{7}", "7"),
        ("\\boxed{}", ""),
        ("boxed{7}", None),
        ("\\boxed{", None),
        ("", None),
    ],
)
def test_boxed(text: str, answer: str | None) -> None:
    found = boxed(text)
    assert (None if found is None else found.text) == answer


def test_long_texts_take_linear_time() -> None:
    assert after_hashes("####\n" * 100_000) is None
    assert fenced_code("```python x\n" * 100_000) is None


def test_boxes_left_open_are_passed_once_and_not_once_each() -> None:
    """20,000 open boxes before 20,000 pairs: a search from each would take minutes."""
    assert boxed("\\boxed{" * 20_000 + "{}" * 20_000) is None


def test_the_other_forms() -> None:
    hashes, sentence = after_hashes("#### 3\n#### 4 dollars\n####\n"), answer_is("The answer is 3. Final Answer: 4 m")
    assert hashes is not None and hashes.text == "4 dollars"
    assert sentence is not None and sentence.text == "4 m"
    assert after_hashes("### 3") is None
    assert answer_is("the answers are 3") is None


def test_the_form_that_stands_last_is_taken_and_the_inner_one_of_nested_forms() -> None:
    forms = (after_hashes, boxed, answer_is)
    assert strict_answer("#### 3 so the answer is \\boxed{4}", forms) == "4"
    assert strict_answer("\\boxed{4}\n#### 3", forms) == "3"
    assert strict_answer("\\boxed{4}\n#### 3", (boxed,)) == "4"
    assert strict_answer("7", forms) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Here:\n```python\nx = 1\n```\nand\n```python\nx = 2\n```\n", "x = 2\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```text\n1\n```", "x = 1\n"),
        ("```python title=a\nx = 1\n```  \nrest", "x = 1\n"),
        ("```python\ns = '```a'\n```", "s = '```a'\n"),
        ("```python\n```", ""),
        ("```python\nx = 1\n", None),
        ("```json\n{}\n```", None),
        ("text ```x = 1```", None),
        ("x = 1", None),
    ],
)
def test_fenced_code(text: str, code: str | None) -> None:
    assert fenced_code(text) == code
