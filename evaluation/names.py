"""The end of every error about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CLOSE = 0.4
"""Likeness from which a valid name is taken to be meant (difflib's ratio)."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or the list of valid names when none is like ``word``."""
    known = list(dict.fromkeys(valid))
    close = difflib.get_close_matches(word, known, n=1, cutoff=CLOSE)
    return f"; did you mean {close[0]!r}?" if close else f"; valid: {', '.join(known) or 'none'}"
