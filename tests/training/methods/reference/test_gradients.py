"""Autograd through the references against central differences, and the identities of the method pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.training.methods.reference import imitation, opsd, paint, sdpg, sdpo, sds, sr_opsd, tip, usd, vpd
from tests.training.methods.reference.divergences import divergence, normalised
from tests.training.methods.reference.policy_gradient import (
    dapo,
    dr_grpo,
    group_advantages,
    grpo,
    grsd_advantages,
    policy_gradient,
    rlsd,
)
from tests.training.methods.reference.random_rows import leaves, random_rows
from tests.training.methods.reference.rows import Row, token_mean

Loss = Callable[[Sequence[Row]], Tensor]


def _frozen_usd(rows: Sequence[Row]) -> Loss:
    weights = [w.detach() for w in usd.usd_tokens(rows, price=0.3).weight]
    return lambda moved: token_mean(moved, usd.usd_tokens(moved, price=0.3).loss, weights)


def _grsd(rows: Sequence[Row]) -> Tensor:
    plain = group_advantages(rows, divide_by_std=True, epsilon=1e-6)
    return policy_gradient(rows, grsd_advantages(rows, plain, bound=3.0), dual=3.0)


SMOOTH: dict[str, Loss] = {
    "sft": imitation.sft,
    "soft": lambda rows: imitation.soft_distillation(rows, reduction="sequence_mean"),
    "opsd_v1": opsd.opsd_v1,
    "opsd_v3": opsd.opsd_v3,
    "sdft": opsd.sdft,
    "sds": lambda rows: sds.sds(rows, rows, [0.3] * len(rows)),
    "tip": tip.tip,
    "sdpo_jsd": lambda rows: sdpo.sdpo(rows, alpha=0.5, k=3, importance_clip=None),
    "sdpo_reverse": lambda rows: sdpo.sdpo(rows, alpha=1, k=3, rest="renormalise", importance_clip=None),
    "trust_region": lambda rows: sdpo.sdpo(rows, alpha=1, k=3, trust_region=0.1, importance_clip=None),
    "sr_opsd": lambda rows: sr_opsd.sr_opsd(rows, k=3, importance_clip=None, entropy_bonus=1e-2),
    "sr_opsd_mix_first": lambda rows: sr_opsd.sr_opsd(
        rows, k=3, rest="renormalise", order="mix_first", token_clip=0.5, importance_clip=None
    ),
    "grpo": lambda rows: grpo(rows, kl=0.1),
    "dr_grpo": lambda rows: dr_grpo(rows, longest=9),
    "dapo": dapo,
    "rlsd": rlsd,
    "grsd": _grsd,
    "sdpg": lambda rows: sdpg.sdpg(rows, beta=0.5, alpha=0.2),
    "sdpg_ufkl": lambda rows: sdpg.sdpg(rows, beta=0.5, alpha=0.2, surrogate="ufkl"),
}


def _moved(rows: Sequence[Row], view: str, steps: Sequence[Tensor]) -> list[Row]:
    result = []
    for row, step in zip(rows, steps, strict=True):
        logits = row.logits[view]
        assert logits is not None
        result.append(replace(row, logits={**row.logits, view: logits.detach() + step}))
    return result


def _agrees(loss: Loss, rows: Sequence[Row], view: str = "student") -> None:
    gradient = torch.autograd.grad(loss(rows), leaves(rows, view))
    generator = torch.Generator().manual_seed(9)
    for _ in range(3):
        direction = [torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in gradient]
        step = 1e-5
        ahead = float(loss(_moved(rows, view, [step * d for d in direction])))
        behind = float(loss(_moved(rows, view, [-step * d for d in direction])))
        slope = float(sum((g * d).sum() for g, d in zip(gradient, direction, strict=True)))
        assert (ahead - behind) / (2 * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", [*SMOOTH])
def test_autograd_equals_central_differences(name: str) -> None:
    # With an old policy the ratio moves with the student alone, so nothing is hidden behind a stop-gradient.
    _agrees(SMOOTH[name], random_rows(3, old=True))


def test_central_differences_with_usd_weights_held() -> None:
    rows = random_rows(3)
    held = _frozen_usd(rows)
    _agrees(held, rows)
    expected = torch.autograd.grad(held(rows), leaves(rows))
    assert all(
        torch.equal(a, b)
        for a, b in zip(torch.autograd.grad(usd.usd(rows, price=0.3), leaves(rows)), expected, strict=True)
    )


def test_central_differences_of_the_preference_with_its_shift_held() -> None:
    rows = random_rows(4, views=("teacher", "prior"))
    for row in rows:
        teacher = row.logits["teacher"]
        assert teacher is not None
        teacher.requires_grad_()
    _agrees(lambda moved: vpd.e_step(moved, beta=0.4, shift_rate=1e-30, shift_before=0.1).loss, rows, "teacher")


def test_sampled_distillation_has_the_gradient_of_reverse_kl_in_expectation() -> None:
    """Σ_a p(a)·∇[−A(a)·log p(a)] = ∇KL(p‖q), page OPSD: the reinforcement view."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 4, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    total = torch.zeros_like(logits)
    for token in range(4):
        row = Row((token,), {"student": logits, "teacher": teacher})
        (gradient,) = torch.autograd.grad(opsd.sampled_token([row], temperature=1.0), logits)
        total += row.log_prob("student").detach().exp() * gradient
    exact = divergence("reverse_kl", normalised(teacher), normalised(logits)).sum()
    torch.testing.assert_close(total, torch.autograd.grad(exact, logits)[0])


def test_renyi_gradient_is_student_minus_tempered_target() -> None:
    rows = random_rows(6, lengths=(5,))
    loss = sr_opsd.sr_opsd(rows, share=0.9, renyi_order=0.95, k=None, importance_clip=None)
    (gradient,) = torch.autograd.grad(loss, leaves(rows))
    t, r, s = (rows[0].log_probs(view).detach() for view in ("teacher", "reference", "student"))
    tempered = normalised(0.855 * t + 0.095 * r + 0.05 * s)
    torch.testing.assert_close(gradient, (s.exp() - tempered.exp()) / 5)


def test_normalising_the_geometric_target_changes_no_gradient() -> None:
    rows = random_rows(6, lengths=(5,))
    t, r, s = (rows[0].log_probs(view) for view in ("teacher", "reference", "student"))
    plain = 0.9 * t + 0.1 * r
    gradients = []
    for target in (plain, normalised(plain)):
        value = torch.logsumexp(0.95 * target + 0.05 * s, dim=-1).sum() / (0.95 - 1)
        gradients.append(torch.autograd.grad(value, leaves(rows), retain_graph=True)[0])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_surrogates_have_no_gradient_at_the_reference() -> None:
    for kind, value in (("urkl", 0.0), ("ufkl", 1.0)):
        rows = random_rows(7, lengths=(4,))
        row = replace(rows[0], logits={**rows[0].logits, "reference": leaves(rows)[0].detach()})
        surrogate = sdpg.kl_surrogate(row, kind, 1.0)
        assert surrogate.tolist() == pytest.approx([value] * 4)
        (gradient,) = torch.autograd.grad(surrogate.sum(), leaves([row]))
        assert float(gradient.abs().max()) < 1e-15


def test_a_preferred_success_lowers_the_loss_and_the_prior_gets_no_gradient() -> None:
    rows = random_rows(8, views=("teacher", "prior"))
    for row in rows:
        for view in ("teacher", "prior"):
            logits = row.logits[view]
            assert logits is not None
            logits.requires_grad_()
    loss = vpd.e_step(rows).loss
    gradients = torch.autograd.grad(loss, leaves(rows, "prior") + leaves(rows, "student"), allow_unused=True)
    assert all(gradient is None for gradient in gradients)
    teacher = torch.autograd.grad(vpd.e_step(rows).loss, leaves(rows, "teacher"))
    for row, gradient in zip(rows, teacher, strict=True):
        chosen = gradient[torch.arange(len(row.ids)), list(row.ids)]
        assert bool((chosen < 0).all() if row.reward == 1 else (chosen > 0).all())


def test_no_gradient_reaches_a_target() -> None:
    for name, loss in SMOOTH.items():
        rows = random_rows(3, old=True)
        targets = [logits for view in ("teacher", "reference") for logits in leaves(rows, view)]
        for logits in targets:
            logits.requires_grad_()
        found = torch.autograd.grad(loss(rows), targets, allow_unused=True)
        assert all(gradient is None for gradient in found), name
    rows = random_rows(3)
    teachers = leaves(rows, "teacher")
    for logits in teachers:
        logits.requires_grad_()
    for loss in (paint.paint, lambda some: usd.usd(some, price=0.2), opsd.sampled_token):
        assert all(g is None for g in torch.autograd.grad(loss(rows), teachers, allow_unused=True))
