"""Feedback on worked answers of the form ``step;step;step#answer``."""

from __future__ import annotations

from collections.abc import Sequence

STEP_SEPARATOR = ";"
ANSWER_MARKER = "#"


def step_feedback(text: str, steps: Sequence[str], answer: str) -> str:
    """What is wrong in ``text``, given the right ``steps`` and ``answer``, in the task's own language.

    The first of these that applies:

    * the first step that is not the right one, as it should be: ``2+7+1=10``
    * ``step 3 missing``, ``step 4 not asked``, ``no #``, when every step that is there is right
    * the right answer, when every step is right: ``#0902``
    """
    written, marker, _ = text.partition(ANSWER_MARKER)
    given = written.split(STEP_SEPARATOR) if written else []
    for step, right in zip(given, steps, strict=False):
        if step != right:
            return right
    if len(given) < len(steps):
        return f"step {len(given) + 1} missing"
    if len(given) > len(steps):
        return f"step {len(steps) + 1} not asked"
    return ANSWER_MARKER + answer if marker else f"no {ANSWER_MARKER}"
