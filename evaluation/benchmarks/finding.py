"""What to say about a name that is no benchmark."""

from __future__ import annotations

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.gym_table import NOT_OFFERED
from evaluation.names import nearest

LISTED = sorted(name for name, benchmark in BENCHMARKS.items() if benchmark.listed)


def unknown(name: str) -> str:
    """``unknown benchmark 'gsm8'; did you mean 'gsm8k'?``, or why a family of reasoning-gym is not offered."""
    reason = NOT_OFFERED.get(name.removeprefix("rg_")) if name.startswith("rg_") else None
    if reason is not None:
        return f"benchmark {name!r} is not offered: {reason}"
    hint = nearest(name, BENCHMARKS)
    # A list of all names would be longer than a screen.
    hint = hint if hint.startswith("; did you mean") else f"; valid: {', '.join(LISTED)}"
    return f"unknown benchmark {name!r}{hint}"
