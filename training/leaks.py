"""Whether privileged contexts reached where they must not be: the student's prompt, or rollouts that repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FEWEST_CHARACTERS = 12
"""Shorter contexts (a bare answer) stand in other texts by chance and are not looked for. Spaces do not count."""


def leak_metrics(
    prompts: Sequence[str],
    responses: Sequence[str | None],
    failed: Sequence[bool],
    contexts: Sequence[Mapping[str, str]],
) -> dict[str, float]:
    """Shares of an update's rollouts, by view, that are all 0 in a sound run.

    Rollout i was drawn from ``prompts[i]`` and is ``responses[i]``; ``contexts[i]`` maps each view that saw more than
    the student to the text it saw. ``context_in_prompt/<view>``: prompts that hold that text, of those shown one.
    ``context_copied/<view>``: responses that hold it whole, of the ``failed`` ones (a right answer may be its reference
    word for word). White space is ignored; a share of nothing is left out.
    """
    held: dict[str, list[bool]] = {}
    squeezed: dict[str, str] = {}
    for prompt, response, wrong, seen in zip(prompts, responses, failed, contexts, strict=True):
        for view, text in seen.items():
            context = squeezed.setdefault(text, "".join(text.split()))
            if len(context) < FEWEST_CHARACTERS:
                continue
            student = squeezed.setdefault(prompt, "".join(prompt.split()))
            held.setdefault(f"context_in_prompt/{view}", []).append(context in student)
            if wrong and response is not None:
                held.setdefault(f"context_copied/{view}", []).append(context in "".join(response.split()))
    return {name: sum(flags) / len(flags) for name, flags in held.items()}
