"""Mixtures of targets: geometric means of two distributions, before or after the support is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from training.losses.distributions import IMPOSSIBLE, Distribution, check_shared, softmax
from training.losses.names import plain_number
from training.losses.supports import SupportPair, on_support, restrict
from training.method import Distill, GeometricMix, TopKSupport, TowardStudent


def geometric(
    target: Distribution, reference: Distribution, share: float | Float[Tensor, "n 1"], where: str = "mix"
) -> Distribution:
    """p ∝ target^share · reference^(1 − share), a linear interpolation of logits (SR-OPSD, SDPO's trust region).

    ``share`` may differ from row to row. Raises ValueError (naming ``where``) if an id is impossible for one side only.
    """
    if isinstance(share, float) and share in (0.0, 1.0):
        return target if share == 1.0 else reference
    check_shared(target, reference, where, ("target", "reference of the mix"))
    mixed = torch.lerp(reference.log_probs, target.log_probs, share)
    if target.has_impossible:
        mixed = mixed.masked_fill_(target.log_probs <= IMPOSSIBLE, -torch.inf)
    return softmax(mixed)


def mixed_pair(
    term: Distill,
    views: Mapping[str, Distribution],
    student: Distribution,
    picked: Bool[Tensor, " n"] | None,
    where: str,
) -> SupportPair:
    """Both sides of ``term`` on its support, the target mixed as ``term.mix`` says; no gradient reaches the mixture.

    ``picked`` are the rows that a TowardStudent mix moves (None: all). A support of the target's likeliest ids takes
    them before the mixture with support_first, and after it otherwise.
    """
    target, mix = views[term.against], term.mix
    if isinstance(mix, TowardStudent):
        return restrict(term.support, _toward_student(mix, target, student, picked, where), student, where)
    if not isinstance(mix, GeometricMix):
        return restrict(term.support, target, student, where)
    reference, share = views[mix.reference], plain_number(mix.share, "mix.share")
    if mix.order == "mix_first":
        return restrict(term.support, geometric(target, reference, share, where), student, where)
    pair = restrict(term.support, target, student, where)
    if pair.ids is None:
        mixed = geometric(target, reference, share, where)
        return replace(pair, target=mixed, whole_target=mixed)
    assert isinstance(term.support, TopKSupport)
    anchored = on_support(reference, pair.ids, term.support)
    return replace(pair, target=geometric(pair.target, anchored, share, where), whole_target=None)


def _toward_student(
    mix: TowardStudent, target: Distribution, student: Distribution, picked: Bool[Tensor, " n"] | None, where: str
) -> Distribution:
    share = plain_number(mix.share, "mix.share")
    if picked is None or mix.positions == "all":
        return geometric(target, student, 1 - share, where)
    rows = 1 - share * picked.to(target.log_probs.dtype)[:, None]
    return geometric(target, student, rows, where)
