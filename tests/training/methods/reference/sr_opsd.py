"""SR-OPSD: a Rényi projection onto a geometric mixture of the averaged self-teacher and a frozen reference."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tests.training.methods.reference.divergences import clipped, entropy, likeliest, normalised, on_support, renyi
from tests.training.methods.reference.rows import Row, token_mean
from tests.training.methods.reference.sdpo import multipliers


def target_and_student(
    row: Row, *, share: float, k: int | None, rest: str, order: str, temperature: float
) -> tuple[Tensor, Tensor]:
    """log π* and log π_θ on the support. support_first: each on the student's top k, then mixed; else the reverse."""
    student = row.log_probs("student", temperature)
    teacher = row.log_probs("teacher", temperature).detach()
    reference = row.log_probs("reference", temperature).detach()
    if k is None:
        return normalised(share * teacher + (1 - share) * reference), student
    ids = likeliest(student, k)
    q = on_support(student, ids, rest)
    if order == "support_first":
        t, r = on_support(teacher, ids, rest), on_support(reference, ids, rest)
        return normalised(share * t + (1 - share) * r), q
    return on_support(normalised(share * teacher + (1 - share) * reference), ids, rest), q


def sr_opsd(
    rows: Sequence[Row],
    *,
    share: float = 0.9,
    renyi_order: float = 0.95,
    k: int | None = 100,
    rest: str = "tail",
    order: str = "support_first",
    token_clip: float | None = None,
    importance_clip: float | None = 2.0,
    sampler_clip: float | None = None,
    entropy_bonus: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """Token mean over the rows with a context of D_ρ(π* ‖ π_θ), minus the entropy bonus over all rows."""
    values = []
    for row in rows:
        if row.sees("teacher", "reference"):
            target, student = target_and_student(row, share=share, k=k, rest=rest, order=order, temperature=temperature)
            value = clipped(renyi(target, student, renyi_order), token_clip)
            weight = multipliers(
                row, importance_clip=importance_clip, sampler_clip=sampler_clip, temperature=temperature
            )
            values.append(weight * value)
    loss = token_mean(rows, values)
    if entropy_bonus:
        spread = [entropy(row.log_probs("student", temperature)) for row in rows]
        loss = loss - entropy_bonus * token_mean(rows, spread)
    return loss
