r"""Finding the final answer in a text: ``\boxed{…}``, ``#### …``, "the answer is …", a fenced code block.

A strict answer is one in a form the prompt asked for; what graders try beyond that is lenient and reported apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """Where an answer begins, and its text."""

    position: int
    text: str


Form = Callable[[str], Found | None]

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[^\s{}$]+))")
_HASHES = re.compile(r"####")
_NUMBER_SIGNS = re.compile(r"#+")
_ANSWER_IS = re.compile(r"\banswer(?:\s+is\b\s*:?|\s*:)", re.IGNORECASE)
_FENCE = re.compile(r"^```[ \t]*(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def boxed(text: str) -> Found | None:
    r"""The last ``\boxed{…}`` whose braces close (or ``\boxed 7``); escaped braces do not count as braces."""
    for match in reversed([*_BOXED.finditer(text)]):
        if match["bare"] is not None:
            return Found(match.start(), match["bare"])
        end = _closing_brace(text, match.end())
        if end is not None:
            return Found(match.start(), text[match.end() : end])
    return None


def _closing_brace(text: str, begin: int) -> int | None:
    depth = 1
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.start()
    return None


def after_hashes(text: str) -> Found | None:
    """The rest of the line after the last ``####``, when there is any."""
    return _last(_HASHES, text)


def after_number_sign(text: str) -> Found | None:
    """The rest of the line after the last run of ``#``, however long: ``…=09#0902`` gives 0902."""
    return _last(_NUMBER_SIGNS, text)


def one_line(text: str) -> Found | None:
    """The whole text, when it is one line."""
    line = text.strip()
    return Found(0, line) if line and "\n" not in line else None


def answer_is(text: str) -> Found | None:
    """The rest of the line after the last "answer is" or "answer:"."""
    return _last(_ANSWER_IS, text)


def _last(header: re.Pattern[str], text: str) -> Found | None:
    for match in reversed([*header.finditer(text)]):
        answer = text[match.end() :].partition("\n")[0].strip()
        if answer:
            return Found(match.start(), answer)
    return None


def strict_answer(text: str, forms: Sequence[Form]) -> str | None:
    r"""The answer that stands last in ``text`` among ``forms``; None when none is there.

    Where one form holds another ("the answer is $\boxed{4}$", "#### \boxed{4}") the inner one, which begins later,
    is taken. Where two begin at one place, the earlier in ``forms`` is.
    """
    found = [answer for form in forms if (answer := form(text)) is not None]
    return max(found, key=lambda answer: answer.position).text if found else None


def fenced_code(text: str, language: str = "python") -> str | None:
    """The last closed Markdown code block in ``language`` or in none named; None without one."""
    blocks = [m["code"] for m in _FENCE.finditer(text) if m["language"].lower() in ("", language, "py")]
    return blocks[-1] if blocks else None
