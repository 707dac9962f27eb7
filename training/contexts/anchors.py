r"""How much of a reference a text has already: recall over anchors (PAINT-style; the paper's full text is not public).

Anchors of a text are what must agree for two solutions to agree: its numbers, its formulas and its boxed answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

Anchor = tuple[str, str]
"""Kind and normal form."""
AnchorKind = Literal["numbers", "formulas", "boxed"]

_NUMBER = re.compile(r"(?<![\w.])(?:\d+(?:(?:,|\{,\})\d{3})+|\d+)(?:\.\d+)?")
_MATHS = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_OPERAND = r"[\w.(){}\\^%]+"
_SUM = rf"{_OPERAND}(?:\s*[-+*/×÷·]\s*{_OPERAND})*"
_EQUATION = re.compile(rf"{_SUM}(?:\s*=\s*{_SUM})*")
_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)


def anchors(text: str, kinds: Sequence[AnchorKind]) -> frozenset[Anchor]:
    r"""The distinct anchors of ``text``.

    * numbers: unsigned, in decimal normal form (``9,500.0`` and ``9500`` are one), not inside words
    * formulas: what stands between ``$``, ``\(`` or ``\[``, and plain equations such as ``48/2 = 24``; spaces dropped
    * boxed: the contents of every ``\boxed{…}``; spaces dropped
    """
    found = {"numbers": _numbers, "formulas": _formulas, "boxed": _boxed}
    return frozenset((kind, anchor) for kind in kinds for anchor in found[kind](text))


def recall(reference: str, attempt: str, kinds: Sequence[AnchorKind]) -> float:
    """r = |Anch(y*) ∩ Anch(ŷ)| / |Anch(y*)|; 0 where the reference has no anchors."""
    wanted = anchors(reference, kinds)
    return len(wanted & anchors(attempt, kinds)) / len(wanted) if wanted else 0.0


def _numbers(text: str) -> Iterator[str]:
    for match in _NUMBER.finditer(text):
        whole, point, fraction = match.group().replace("{,}", "").replace(",", "").partition(".")
        fraction = fraction.rstrip("0")
        yield (whole.lstrip("0") or "0") + (point + fraction if fraction else "")


def _formulas(text: str) -> Iterator[str]:
    for match in _MATHS.finditer(text):
        yield _dense(next(group for group in match.groups() if group is not None))
    for match in _EQUATION.finditer(_MATHS.sub(" ", text)):
        if "=" in match.group():
            yield _dense(match.group()).rstrip(".")


def _boxed(text: str) -> Iterator[str]:
    opened: list[re.Match[str]] = []
    for match in _BRACE.finditer(text):
        if match.group().endswith("{") and match.group() != "\\{":
            opened.append(match)
        elif match.group() == "}" and opened:
            opening = opened.pop()
            if opening["box"] is not None:
                yield _dense(text[opening.end() : match.start()])


def _dense(text: str) -> str:
    return "".join(text.split())
