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

_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[^\s{}$]+)))|\\.|[{}]", re.DOTALL)
_HASHES = re.compile(r"####")
_NUMBER_SIGNS = re.compile(r"#+")
_ANSWER_IS = re.compile(r"\banswer(?:\s+is\b\s*:?|\s*:)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.[\s\"'”*]+(?=[A-Z<])")
_FENCE = re.compile(r"```[ \t]*(?P<language>\w*)(?P<rest>.*)")


def boxed(text: str) -> Found | None:
    r"""The last ``\boxed{…}`` whose braces close (or ``\boxed 7``); escaped braces do not count as braces."""
    best: Found | None = None
    opened: list[re.Match[str]] = []
    for match in _BRACES.finditer(text):  # one pass, however many boxes are left open
        found: Found | None = None
        if match["bare"] is not None:
            found = Found(match.start(), match["bare"])
        elif match.group().endswith("{") and match.group() != "\\{":
            opened.append(match)
        elif match.group() == "}" and opened:
            opening = opened.pop()
            if opening["box"] is not None:
                found = Found(opening.start(), text[opening.end() : match.start()])
        if found is not None and (best is None or found.position > best.position):
            best = found
    return best


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
    """The rest of the sentence after the last "answer is" or "answer:", at most to the end of its line."""
    found = _last(_ANSWER_IS, text)
    return None if found is None else Found(found.position, _SENTENCE_END.split(found.text, maxsplit=1)[0])


def _last(header: re.Pattern[str], text: str) -> Found | None:
    for match in reversed([*header.finditer(text)]):
        end = text.find("\n", match.end())
        answer = text[match.end() : len(text) if end < 0 else end].strip()
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
    last: str | None = None
    block: list[str] | None = None
    named = ""
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line.rstrip())
        if fence is None:
            if block is not None:
                block.append(line)
        elif block is None:
            block, named = [], fence["language"].lower()
        elif fence["language"] or fence["rest"]:
            block.append(line)
        else:
            last = "".join(block) if named in ("", language, "py") else last
            block = None
    return last
