"""OPSD v1, v3 and its sampled-token variant; SDFT is the same loss with another teacher and context."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tests.training.methods.reference.imitation import soft_distillation
from tests.training.methods.reference.rows import Row, token_mean


def opsd_v1(rows: Sequence[Row], *, temperature: float = 1.2) -> Tensor:
    """Symmetric JSD, no clip, token mean."""
    return soft_distillation(rows, kind="jsd", parameter=0.5, temperature=temperature)


def opsd_v3(rows: Sequence[Row], *, temperature: float = 1.1, entry_clip: float | None = 0.05) -> Tensor:
    """Forward KL with an upper clip of each vocabulary entry, token mean."""
    return soft_distillation(rows, kind="forward_kl", entry_clip=entry_clip, temperature=temperature)


def sampled_token(rows: Sequence[Row], *, temperature: float = 1.1) -> Tensor:
    """−1/T Σ_t A_t·log p_S(ŷ_t), A_t = sg[log p_T(ŷ_t) − log p_S(ŷ_t)]."""
    values = []
    for row in rows:
        own, target = row.log_prob("student", temperature), row.log_prob("teacher", temperature)
        values.append(-(target - own).detach() * own)
    return token_mean(rows, values)


def sampled_advantage(rows: Sequence[Row], *, temperature: float = 1.1) -> float:
    """−1/T Σ_t A_t: what the same loss is worth when it is written with the ratio, which is 1."""
    return float(
        token_mean(
            rows,
            [(row.log_prob("student", temperature) - row.log_prob("teacher", temperature)).detach() for row in rows],
        )
    )


def sdft(rows: Sequence[Row], *, kind: str = "forward_kl", parameter: float = 0.5, temperature: float = 1.0) -> Tensor:
    """Full-vocabulary divergence to the averaged teacher that sees a demonstration, per token of the rollout."""
    return soft_distillation(rows, kind=kind, parameter=parameter, temperature=temperature)
