r"""Anchors against sets written by hand."""

from __future__ import annotations

import time

import pytest

from training.contexts.anchors import anchors, recall


def found(kind: str, text: str) -> set[str]:
    return {anchor for _, anchor in anchors(text, [kind])}  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("no digits", set()),
        ("4+8+0=12;2+7+1=10#0902", {"4", "8", "0", "12", "2", "7", "1", "10", "902"}),
        ("9,500 and 9500.00 and 9{,}500", {"9500"}),
        ("1.50 is 1.5", {"1.5"}),
        ("x2 v1.2 H2O", set()),
        ("12,34", {"12", "34"}),
        ("It is 72.", {"72"}),
        ("007 0 0.0", {"7", "0"}),
        (f"{'1' * 60}.5", {f"{'1' * 60}.5"}),
    ],
)
def test_numbers(text: str, expected: set[str]) -> None:
    assert found("numbers", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the sum", set()),
        ("so 48/2 = 24 clips.", {"48/2=24"}),
        ("4+8+0=12;2+7+1=10#102", {"4+8+0=12", "2+7+1=10"}),
        (r"$x^2 + 1$ and \(y = 2\) and \[ z \]", {"x^2+1", "y=2", "z"}),
        ("$$a = b$$ then a = b = c.", {"a=b", "a=b=c"}),
        ("x = 3 and x=3", {"x=3"}),
    ],
)
def test_formulas(text: str, expected: set[str]) -> None:
    assert found("formulas", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{7}", {"7"}),
        (r"\boxed{\frac{1}{2}} or \boxed{ x }", {r"\frac{1}{2}", "x"}),
        (r"\boxed{a \boxed{b}}", {r"a\boxed{b}", "b"}),
        (r"\boxed{open", set()),
        (r"\boxed{\{1\}}", {r"\{1\}"}),
    ],
)
def test_boxed(text: str, expected: set[str]) -> None:
    assert found("boxed", text) == expected


def test_recall_counts_the_references_anchors() -> None:
    assert recall("1 2 3 4", "4 3 9 9 9", ["numbers"]) == 0.5, "what the attempt has beyond the reference is no matter"
    assert recall("1 1 1 2", "1", ["numbers"]) == 0.5, "an anchor counts once"
    assert recall("1 2", "2 1", ["numbers"]) == 1.0
    assert recall("1 2", "", ["numbers"]) == 0.0
    assert recall("no anchors", "1 2 3", ["numbers", "formulas", "boxed"]) == 0.0
    # numbers 1, 2, 3 and the formula 1+2=3; the attempt has 3 alone
    assert recall("1+2=3", "3", ["numbers", "formulas"]) == 0.25


def test_one_text_of_two_kinds_is_two_anchors() -> None:
    assert anchors(r"\boxed{7}", ["numbers", "boxed"]) == {("numbers", "7"), ("boxed", "7")}


@pytest.mark.parametrize("text", ["a" * 20_000, "1+" * 10_000, "= " * 10_000, " " * 20_000, "\\boxed{" * 3000])
def test_long_odd_texts_take_no_long_time(text: str) -> None:
    began = time.process_time()
    anchors(text, ["numbers", "formulas", "boxed"])
    assert time.process_time() - began < 2
