"""Supervised fine-tuning on worked solutions, the off-policy baseline.

    L = −1/T Σ_t log p_S(y*_t | x, y*_<t)

over the response only, behind the chat template that evaluation uses.
"""

from __future__ import annotations

from evaluation.samplers.base import SamplingParams
from training.method import Adapter, Batch, CrossEntropy, Method, Optimiser, Phase, StudentWeights, View
from training.methods.scales import WIDE, Changes, tiny

SFT = Method(
    key="sft",
    title="SFT",
    summary="Imitates the worked solutions; draws nothing itself.",
    paper=None,
    status="baseline",
    equation="−1/T Σ_t log p_S(y*_t | x, y*_<t)",
    open_choices={
        "numbers": "The baseline of arXiv:2601.18734v1. The third version's is said to take 5e-6 and batches of 32.",
        "updates": "Four epochs in that baseline, 100 steps in the later one; the study's budget decides.",
        "loss mask": "The response only. The authors' script trains on the problem's tokens too.",
        "prompt": "The chat template of evaluation. The authors' script uses raw text without one.",
        "schedule": "Not stated; constant.",
    },
    ablations={
        "phases.student.optimiser.learning_rate": (5e-6,),
        "batch.prompts": (32,),
        "phases.student.terms.imitate.reduction": ("sequence_mean",),
        "adapter": (None,),
    },
    sampling=SamplingParams(max_new_tokens=16_000),
    batch=Batch(prompts=64),
    adapter=Adapter(rank=64, alpha=128),
    views={"student": View(weights=StudentWeights())},
    phases={"student": Phase(terms={"imitate": CrossEntropy()}, optimiser=Optimiser(learning_rate=2e-5))},
)

PRESETS: dict[str, dict[str, Changes]] = {"sft": {"tiny": tiny(SFT, learning_rate=WIDE)}}
