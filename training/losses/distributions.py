"""From logits to distributions: one place for upcasting, temperature, normalisation and impossible ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

IMPOSSIBLE = -1e30
"""Stands for log 0: its exponential is exactly 0, and the difference of two of them is finite."""


@dataclass(frozen=True)
class Distribution:
    """n distributions over K events, with both forms at hand so that no loss exponentiates twice."""

    log_probs: Float[Tensor, "n K"]
    """Natural logarithms, IMPOSSIBLE where the probability is 0 by a logit of −inf."""
    probs: Float[Tensor, "n K"]
    has_impossible: bool = False

    def rows(self, index: Int[Tensor, " m"]) -> Distribution:
        """The distributions at ``index``."""
        return Distribution(self.log_probs[index], self.probs[index], self.has_impossible)

    def entropy(self) -> Float[Tensor, " n"]:
        """−Σ_v p(v) log p(v), in nats; impossible ids add 0."""
        return -torch.linalg.vecdot(self.probs, self.log_probs)

    def at(self, ids: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """log p(id) of one id a row."""
        return self.log_probs.gather(-1, ids[:, None]).squeeze(-1)

    def at_ids(self, ids: Int[Tensor, "n k"]) -> Distribution:
        """The probabilities of ``ids``, not renormalised."""
        return Distribution(self.log_probs.gather(-1, ids), self.probs.gather(-1, ids), self.has_impossible)


def softmax(logits: Float[Tensor, "n V"], temperature: float = 1.0) -> Distribution:
    """softmax(logits / temperature), in fp32 or wider.

    bf16 log-probabilities make divergences negative, hence the upcast; and the normaliser is summed by ``torch.sum``
    (pairwise) because ``torch.log_softmax`` on a CPU is off by up to 1e-5 at 150,000 ids, which is a bias of every
    divergence. Logits of −inf give IMPOSSIBLE. Raises ValueError where a row has no finite logit, NaN or +inf.
    """
    values = logits if logits.dtype == torch.float64 else logits.float()
    if temperature != 1.0:
        values = values / temperature
    highest = values.amax(dim=-1, keepdim=True)
    if not bool(torch.isfinite(highest).all()):
        row = int((~torch.isfinite(highest)).flatten().nonzero()[0])
        raise ValueError(f"logits of token row {row} have maximum {float(highest[row])}: no distribution is defined")
    values = values - highest
    probs = values.exp()
    total = probs.sum(dim=-1, keepdim=True)
    probs /= total
    values -= total.log()
    return _with_impossible(values, probs)


def from_log_probs(log_probs: Float[Tensor, "n K"]) -> Distribution:
    """A distribution from normalised log-probabilities; −inf is allowed."""
    return _with_impossible(log_probs.clone(), log_probs.exp())


def _with_impossible(log_probs: Tensor, probs: Tensor) -> Distribution:
    holes = log_probs.numel() > 0 and bool(log_probs.amin() < IMPOSSIBLE)
    if holes:
        log_probs = log_probs.masked_fill_(torch.isneginf(log_probs), IMPOSSIBLE)
    return Distribution(log_probs, probs, holes)


def check_shared(
    target: Distribution, student: Distribution, where: str, sides: tuple[str, str] = ("target", "student")
) -> None:
    """Ids impossible for one side only have no finite divergence: ValueError naming ``where`` and one of ``sides``."""
    if not (target.has_impossible or student.has_impossible):
        return
    one_sided = (target.log_probs <= IMPOSSIBLE) != (student.log_probs <= IMPOSSIBLE)
    if bool(one_sided.any()):
        row, column = (int(i) for i in one_sided.nonzero()[0])
        side = sides[0] if bool(target.log_probs[row, column] <= IMPOSSIBLE) else sides[1]
        raise ValueError(
            f"{where}: {int(one_sided.sum())} entries of the support have logit -inf on one side only (first: "
            f"token row {row}, entry {column}, -inf for the {side}); mask the same ids on both sides, or on neither"
        )
