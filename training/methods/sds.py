"""Supervised distillation steering (SDS): arXiv:2608.07935, as its summaries tell it.

    L = mean_i( L_OPSD,i + α·w_i·L_anchor,i ),   L_anchor = −1/|y*| Σ_t log p_S(y*_t | x, y*_<t),   w = 1 − F1(ŷ, y*)

Distillation sees x and ŷ, the anchor x and y*: the prefixes never mix. w carries no gradient.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import SolutionContext
from training.method import (
    JSD,
    Adapter,
    Alignment,
    Batch,
    CrossEntropy,
    Distill,
    FrozenWeights,
    Method,
    Optimiser,
    Phase,
    StudentWeights,
    View,
)
from training.methods.scales import WIDE, Changes, tiny
from training.schedules import Steps

TERMS = "phases.student.terms"

_DISTILL = Distill(divergence=JSD(beta=0.5), temperature="sampling", reduction="sequence_mean")
_ANCHOR = CrossEntropy(alignment=Alignment(similarity="token_f1"), reduction="sequence_mean", coefficient=0.2)


def _anchor(**changes: Any) -> dict[str, Any]:
    return {**_ANCHOR.model_dump(mode="json"), **changes}


def two_stage(first: int) -> dict[str, Any]:
    """The terms of SFT for ``first`` updates and OPSD afterwards (the paper's control)."""
    on, off = ((1, 1.0), (first + 1, 0.0)), ((1, 0.0), (first + 1, 1.0))
    return {
        "distill": {**_DISTILL.model_dump(mode="json"), "coefficient": Steps(values_from=off).model_dump(mode="json")},
        "anchor": _anchor(alignment=None, coefficient=Steps(values_from=on).model_dump(mode="json")),
    }


MIXED: dict[str, Any] = _anchor(data="rollouts", labels="references", alignment=None)
"""The anchor's targets behind the rollout's prefixes: the control in which the contexts mix."""

SDS = Method(
    key="sds",
    title="SDS",
    summary="OPSD, anchored to the reference by cross entropy, the more so the less the rollout is like it.",
    paper="arXiv:2608.07935",
    status="reading",
    equation="mean_i[ 1/|ŷ| Σ_t JSD_½(p_T ‖ p_S)_t − 0.2·w_i·1/|y*| Σ_t log p_S(y*_t | x, y*_<t) ],  w = 1 − F1(ŷ, y*)",
    open_choices={
        "granularity": "w for each sample; the batch's mean is the alternative.",
        "coefficient": "α is not reported; 0.2, from the sweep 0.1, 0.2, 0.5.",
        "divergence": "Generalised Jensen-Shannon with β 0.5 and no clip.",
        "similarity": "F1 over multisets of token ids without the end token.",
        "numbers": "Learning rate, batch, sampling and length are not reported: those of OPSD v3.",
        "schedule": "Not reported; constant.",
        "two stages": "The control's switch point is not reported; after 50 updates.",
        "mixed contexts": "The control keeps the coefficient of 0.2 and drops w.",
        "thinking": "Both views leave it to the chat template, so that the anchor is trained as evaluation asks.",
    },
    ablations={
        f"{TERMS}.anchor.coefficient": (0.1, 0.5, 0.0),
        f"{TERMS}.anchor.alignment.similarity": ("rouge_l", "edit_distance", "exact_match"),
        f"{TERMS}.anchor.alignment.granularity": ("batch",),
        f"{TERMS}.anchor.alignment": (None,),  # fixed weight 1
        f"{TERMS}.anchor": (_anchor(alignment=None, coefficient=0.1), MIXED),  # fixed weight 0.5; mixed contexts
        TERMS: (two_stage(50),),
        f"{TERMS}.distill.divergence": ("forward_kl",),
    },
    sampling=SamplingParams(max_new_tokens=1024, temperature=1.1, top_p=0.95, top_k=20),
    batch=Batch(prompts=32),
    adapter=Adapter(rank=64, alpha=128),
    views={
        "student": View(weights=StudentWeights()),
        "teacher": View(weights=FrozenWeights(), context=SolutionContext()),
    },
    phases={
        "student": Phase(
            terms={"distill": _DISTILL, "anchor": _ANCHOR},
            optimiser=Optimiser(learning_rate=5e-6, max_grad_norm=0.1),
        )
    },
)

PRESETS: dict[str, dict[str, Changes]] = {"sds": {"tiny": tiny(SDS, learning_rate=WIDE)}}
