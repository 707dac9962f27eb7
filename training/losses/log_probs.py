"""From logits to log-probabilities: one place for upcasting, temperature, vocabulary width and impossible ids."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IMPOSSIBLE = -1e30
"""Stands for log 0 on both sides: its exponential is exactly 0 and differences of two of them are finite."""


def upcast(logits: Float[Tensor, "*n V"]) -> Float[Tensor, "*n V"]:
    """At least fp32: bf16 log-probabilities make divergences negative."""
    return logits if logits.dtype == torch.float64 else logits.float()


def log_probs(logits: Float[Tensor, "n V"], temperature: float = 1.0) -> Float[Tensor, "n V"]:
    """log softmax(logits / temperature), in fp32 or wider; ids with logit −inf come back as IMPOSSIBLE.

    Raises ValueError where a row holds nothing but −inf.
    """
    scaled = upcast(logits)
    if temperature != 1.0:
        scaled = scaled / temperature
    result = torch.log_softmax(scaled, dim=-1)
    lowest = result.amin(dim=-1)
    if bool((lowest < IMPOSSIBLE).any()):
        result = result.masked_fill(torch.isneginf(result), IMPOSSIBLE)
    return result


def check_shared(target: Float[Tensor, "n K"], student: Float[Tensor, "n K"], where: str) -> None:
    """Ids impossible for one side only have no finite divergence: ValueError naming ``where``."""
    one_sided = (target <= IMPOSSIBLE) != (student <= IMPOSSIBLE)
    if bool(one_sided.any()):
        row, column = (int(i) for i in one_sided.nonzero()[0])
        side = "target" if bool(target[row, column] <= IMPOSSIBLE) else "student"
        raise ValueError(
            f"{where}: {int(one_sided.sum())} vocabulary entries have logit -inf on one side only "
            f"(first: token row {row}, entry {column} of the support, -inf for the {side}); "
            "mask the same ids on both sides, or on neither"
        )


def at_labels(log_probabilities: Float[Tensor, "n V"], ids: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log p(y_t) of the response token at each position."""
    return log_probabilities.gather(-1, ids[:, None]).squeeze(-1)


def entropy(log_probabilities: Float[Tensor, "n V"]) -> Float[Tensor, " n"]:
    """−Σ_v p(v) log p(v), in nats; IMPOSSIBLE ids add 0."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def impossible_labels(label_log_probs: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Which response tokens the view gives probability 0."""
    return label_log_probs <= IMPOSSIBLE
