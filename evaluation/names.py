"""What is said about a name that is not there, and which run the beginning of an id means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CLOSE = 0.4
"""Likeness from which a valid name is taken to be meant (difflib's ratio)."""
LISTED_RUNS = 1000
"""Most run ids that a refusal compares with: comparing with all of a large store takes seconds."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or the list of valid names when none is like ``word``."""
    known = list(dict.fromkeys(valid))
    close = difflib.get_close_matches(word, known, n=1, cutoff=CLOSE)
    return f"; did you mean {close[0]!r}?" if close else f"; valid: {', '.join(known) or 'none'}"


class UnknownRunError(ValueError):
    """The beginning of no run's id, or of several."""


def run_meant(beginning: str, run_ids: Iterable[str]) -> str:
    """The one of ``run_ids`` that begins with ``beginning``; raises UnknownRunError for none and for several."""
    known = sorted(set(run_ids))
    meant = [beginning] if beginning in known else [name for name in known if beginning and name.startswith(beginning)]
    if len(meant) > 1:
        raise UnknownRunError(
            f"run {beginning!r} may be any of {len(meant)}: {', '.join(meant[:3])}, …: type more of it"
        )
    if not meant:
        raise UnknownRunError(f"no run {beginning!r} in this store{nearest(beginning, known[:LISTED_RUNS])}")
    return meant[0]
