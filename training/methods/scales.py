"""The small scales that presets fit methods to (values only, no torch)."""

from __future__ import annotations

from typing import Any

from training.method import Method, Optimiser

Changes = dict[str, Any]

WIDE, GROUPED = 5e-4, 1e-4
"""Learning rates of the tiny scale: 64 problems an update, and 8 problems of 8 rollouts."""


def tiny(method: Method, *, learning_rate: float, prompts: int = 64, group_size: int = 1, **more: Any) -> Changes:
    """``method`` on the tiny bases: 64 rollouts an update, short answers, all weights trained at a constant rate.

    Keyword arguments beyond the named ones are further fields of ``batch``.
    """
    optimiser = Optimiser(learning_rate=learning_rate, betas=(0.9, 0.98), warmup_updates=5)
    return {
        **_batch(prompts=prompts, group_size=group_size, **more),
        "sampling.max_new_tokens": 34,
        "sampling.temperature": 1.0,
        "sampling.top_p": 1.0,
        "sampling.top_k": 0,
        **{f"phases.{name}.optimiser": optimiser.model_dump(mode="json") for name in method.phases},
        **_plain(method),
    }


def smollm2(method: Method) -> Changes:
    """``method`` on SmolLM2-135M with short sums."""
    optimiser = Optimiser(learning_rate=5e-5, betas=(0.9, 0.98), warmup_updates=3)
    return {
        **tiny(method, learning_rate=5e-5, prompts=16),
        "sampling.max_new_tokens": 24,
        "sampling.temperature": 0.5,  # at 1.0 a model of this size wanders off within a line
        **{f"phases.{name}.optimiser": optimiser.model_dump(mode="json") for name in method.phases},
    }


def _batch(**fields: Any) -> Changes:
    return {f"batch.{name}": value for name, value in fields.items()}


def _plain(method: Method) -> Changes:
    """No adapter, no thinking switch (the templates have none) and no cut contexts."""
    changes: Changes = {} if method.adapter is None else {"adapter": None}
    for name, view in method.views.items():
        if view.thinking is not None:
            changes[f"views.{name}.thinking"] = None
        if view.max_context_tokens is not None:
            changes[f"views.{name}.max_context_tokens"] = None
    return changes
