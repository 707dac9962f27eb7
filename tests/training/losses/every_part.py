"""Terms that between them use every part of the objective, at two temperatures."""

from __future__ import annotations

from training.method import (
    JSD,
    CrossEntropy,
    Distill,
    Entropy,
    GeometricMix,
    Importance,
    PolicyGradient,
    Preference,
    Renyi,
    ReverseKL,
    SampledKL,
    TopKSupport,
    TowardStudent,
    UsdHard,
    UsdSoft,
)
from training.objective import Term

MIXED: dict[str, Term] = {
    "masked": Distill(divergence=JSD(beta=0.3), temperature=0.8, reduction="sequence_mean"),
    "clipped": Distill(entry_clip=0.05, support=TopKSupport(k=4, of="target"), coefficient=0.5),
    "anchored": Distill(
        divergence=Renyi(order=0.95), support=TopKSupport(k=4), mix=GeometricMix(), importance=Importance(clip=1.1)
    ),
    "trust_region": Distill(
        mix=GeometricMix(share=0.3, order="mix_first"),
        support=TopKSupport(k=4, rest="renormalise"),
        token_clip=1.0,
        normalise="tokens",
        reduction="sequence_mean",
    ),
    "sparse": Distill(mix=TowardStudent(share=0.4), importance=Importance(clip=None, gradient=True)),
    "soft": Distill(weighting=UsdSoft(price=0.4), sampler_importance_clip=1.1, temperature=0.8),
    "hard": Distill(divergence=ReverseKL(), weighting=UsdHard(price=0.5), normalise="tokens", reduction="constant"),
    "drift": SampledKL(temperature=0.8, importance=Importance(gradient=True), reduction="sequence_mean"),
    "surrogate": SampledKL(temperature=1.0, estimator="urkl", coefficient=0.3),
    "reward": PolicyGradient(clip_high=0.28, reduction="constant", coefficient=2.0, temperature=0.8),
    "bounded": PolicyGradient(
        dual_clip=1.5, normalise="weights", sampler_importance_clip=1.2, temperature=0.8, reduction="sequence_mean"
    ),
    "imitation": CrossEntropy(coefficient=0.1),
    "answers": CrossEntropy(data="rollouts", labels="references", normalise="weights"),
    "preference": Preference(of="student", against="reference", temperature=0.8),
    "spread": Entropy(temperature=1.0, coefficient=0.1),
}
