"""Random ragged rows for tests of the references themselves."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.training.methods.reference.rows import Row

VOCABULARY = 7


def random_rows(
    seed: int = 0,
    lengths: Sequence[int] = (4, 1, 6, 3, 2, 5),
    *,
    views: Sequence[str] = ("teacher", "reference"),
    group_size: int = 3,
    rewards: Sequence[float | None] = (1.0, 0.0, 1.0, 0.0, 0.0, 1.0),
    old: bool = False,
    spread: float = 1.5,
) -> list[Row]:
    """Rows in groups of ``group_size``; ``student`` logits are leaves that record a gradient."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * spread

    rows = []
    for i, length in enumerate(lengths):
        ids = tuple(torch.randint(VOCABULARY, (length,), generator=generator).tolist())
        logits: dict[str, torch.Tensor | None] = {view: normal(length, VOCABULARY) for view in views}
        student = normal(length, VOCABULARY).requires_grad_()
        logits["student"] = student
        row = Row(ids, logits, group=i // group_size, reward=rewards[i % len(rewards)])
        own = row.log_prob("student").detach()
        shifted = own + 0.5 * torch.randn(length, generator=generator, dtype=torch.float64)
        row = Row(
            ids,
            logits,
            group=row.group,
            reward=row.reward,
            old=tuple(shifted.tolist()) if old else None,
            drawn=tuple((own + 0.3 * torch.randn(length, generator=generator, dtype=torch.float64)).tolist()),
        )
        rows.append(row)
    return rows


def leaves(rows: Sequence[Row], view: str = "student") -> list[torch.Tensor]:
    found = [row.logits[view] for row in rows]
    return [logits for logits in found if logits is not None]
