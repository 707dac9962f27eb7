"""Finding problems that are on both sides of a split: the same text, or nearly.

Two problems are the same when their normal forms are equal: Unicode NFKC, case folded, cut into words, numbers and
mathematical signs, everything else (spaces, sentence punctuation, quotes, hyphens between letters) dropped.

Two problems are near duplicates when the numbers and signs in them are the same, in the same order, and

* both have 13 tokens or more, and 0.4 of the distinctive 13-grams of the one that has fewer are in the other (a gram
  found in more than four texts of either side is boilerplate, such as a common instruction, and not distinctive); or
* one is shorter, they hold two numbers or more, and one contains the other, or they share at least 0.6 of their
  character 5-grams (Jaccard).

Numbers must agree because another number makes another problem: ``12+34`` and ``12+35`` are two problems, and so are
two word problems from one template. Short texts without numbers are compared by normal form alone: one word makes
another question there.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluation.problems import Problem

WORDS = 13
"""Length of the word n-grams of long texts (Brown et al. 2020, arXiv:2005.14165, appendix C)."""

SHARED_WORDS = 0.4
"""Least share of distinctive word n-grams found in the other text."""

COMMON = 4
"""A word n-gram in more texts than this, of both sides together, is boilerplate."""

CHARACTERS = 5
"""Length of the character n-grams of short texts."""

SHARED_CHARACTERS = 0.6
"""Least Jaccard index of the character n-grams of short texts."""

SHORT_NUMBERS = 2
"""Least count of numbers for two short texts to be compared by more than their normal form."""

_TOKEN = re.compile(r"[0-9]+(?:[.,][0-9]+)*|[^\W\d_]+|[-+*/=<>^%×÷·±√∑∏∫°$€£|!()\[\]{}\\_]|\d")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010-\u2015](?=[^\W\d_])")
_SIGNS = frozenset("+-*/=<>^%×÷·±√")
_PUNCTUATION = frozenset("!()[]{}\\_|")
"""Signs that separate tokens and count as no token of their own."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """One problem of ``train`` that is also in ``test``. ``shared`` is 1 for the same text."""

    train_id: str
    test_id: str
    kind: Literal["same text", "near duplicate"]
    shared: float


def text_of(problem: Problem) -> str:
    """What the problem asks: its messages other than the system's."""
    return "\n".join(message.content for message in problem.prompt if message.role != "system")


def tokens(text: str) -> tuple[str, ...]:
    """The words, numbers and signs of ``text`` in normal form."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    return tuple(token for token in _TOKEN.findall(_HYPHEN.sub(" ", text)) if token not in _PUNCTUATION)


def normal_form(text: str) -> str:
    """``text`` up to case, spacing and punctuation; texts without any token keep their characters."""
    return _form(text, tokens(text))


def _form(text: str, found: tuple[str, ...]) -> str:
    return " ".join(found) if found else " ".join(text.split())


class _Text:
    """One text, prepared for comparison."""

    __slots__ = ("form", "grams", "numbers", "signature", "tokens")

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.form = _form(text, self.tokens)
        self.signature = tuple(token for token in self.tokens if token[0].isdigit() or token in _SIGNS)
        self.numbers = sum(token[0].isdigit() for token in self.signature)
        long = len(self.tokens) >= WORDS
        self.grams = frozenset(_windows(self.tokens, WORDS)) if long else frozenset()


def _windows(sequence: Sequence[str], length: int) -> Iterable[int]:
    # Hashes, not tuples: a gram is compared within one process only, and an index of tuples is ten times as large.
    return (hash(tuple(sequence[i : i + length])) for i in range(len(sequence) - length + 1))


class _Index:
    """The texts of one side, to be searched with texts of the other."""

    def __init__(self, texts: Sequence[_Text], common: frozenset[int]) -> None:
        self.texts, self.common = texts, common
        self.by_form: dict[str, list[int]] = defaultdict(list)
        self.by_gram: dict[tuple[tuple[str, ...], int], list[int]] = defaultdict(list)
        self.by_signature: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            self.by_form[text.form].append(number)
            for gram in text.grams - common:
                self.by_gram[text.signature, gram].append(number)
            if text.numbers >= SHORT_NUMBERS:
                self.by_signature[text.signature].append(number)

    def matches(self, text: _Text) -> dict[int, float]:
        """Place and shared portion of every text that is ``text`` or nearly; 1 for the same normal form."""
        found = self._long(text) | self._short(text)
        return found | dict.fromkeys(self.by_form.get(text.form, ()), 1.0)

    def _long(self, text: _Text) -> dict[int, float]:
        own = text.grams - self.common
        counts = Counter(number for gram in own for number in self.by_gram.get((text.signature, gram), ()))
        shares = {n: shared / min(len(own), len(self.texts[n].grams - self.common)) for n, shared in counts.items()}
        return {number: share for number, share in shares.items() if share >= SHARED_WORDS}

    def _short(self, text: _Text) -> dict[int, float]:
        if text.numbers < SHORT_NUMBERS:
            return {}
        others = [n for n in self.by_signature.get(text.signature, ()) if not (text.grams and self.texts[n].grams)]
        shares = {number: _likeness(text.form, self.texts[number].form) for number in others}
        return {number: share for number, share in shares.items() if share >= SHARED_CHARACTERS}


def _common_grams(texts: Iterable[_Text]) -> frozenset[int]:
    counts = Counter(gram for text in texts for gram in text.grams)
    return frozenset(gram for gram, count in counts.items() if count > COMMON)


def _likeness(one: str, other: str) -> float:
    if f" {one} " in f" {other} " or f" {other} " in f" {one} ":
        return 1.0
    first, second = ({text[i : i + CHARACTERS] for i in range(len(text) - CHARACTERS + 1)} for text in (one, other))
    return len(first & second) / len(first | second) if first | second else 0.0


def check_overlap(train: Sequence[Problem], test: Sequence[Problem]) -> list[Overlap]:
    """Every problem of ``train`` that is also in ``test`` (the first such one), in the order of ``train``."""
    learned, asked = ([_Text(text_of(problem)) for problem in side] for side in (train, test))
    index = _Index(asked, _common_grams([*learned, *asked]))
    overlaps = []
    for problem, text in zip(train, learned, strict=True):
        matches = index.matches(text)
        if matches:
            place = min(matches, key=lambda n: (asked[n].form != text.form, -matches[n], n))
            same = asked[place].form == text.form
            kind: Literal["same text", "near duplicate"] = "same text" if same else "near duplicate"
            overlaps.append(Overlap(problem.id, test[place].id, kind, matches[place]))
    return overlaps


def group_alike(problems: Sequence[Problem]) -> list[int]:
    """A group number for each problem: problems that overlap or share a ``cluster`` are in one group."""
    parent = list(range(len(problems)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    texts = [_Text(text_of(problem)) for problem in problems]
    index = _Index(texts, _common_grams(texts))
    first_of_cluster: dict[str, int] = {}
    for number, (problem, text) in enumerate(zip(problems, texts, strict=True)):
        alike = [*index.matches(text)]
        if problem.cluster is not None:
            alike.append(first_of_cluster.setdefault(problem.cluster, number))
        for other in alike:
            parent[root(number)] = root(other)
    return [root(number) for number in range(len(problems))]
