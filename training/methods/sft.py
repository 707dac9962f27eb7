"""Supervised fine-tuning on worked solutions, the off-policy baseline.

    L = −1/T Σ_t log p_S(y*_t | x, y*_<t)

over the response only, behind the chat template that evaluation uses.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.method import Batch, CrossEntropy, Method, Optimiser, Phase, StudentWeights, View

SFT = Method(
    key="sft",
    title="SFT",
    summary="Imitates the worked solutions; draws nothing itself.",
    paper=None,
    status="baseline",
    equation="−1/T Σ_t log p_S(y*_t | x, y*_<t)",
    open_choices={
        "numbers": "Learning rate, batch and length are those of the baseline in arXiv:2601.18734v1, constant rate.",
        "loss mask": "The response only. The authors' script trains on the problem's tokens too.",
        "prompt": "The chat template of evaluation. The authors' script uses raw text without one.",
        "adapter": "The baseline trains LoRA (rank 64, α 128); here all weights train.",
    },
    sampling=SamplingParams(max_new_tokens=16_000),
    batch=Batch(prompts=64),
    views={"student": View(weights=StudentWeights())},
    phases={
        "student": Phase(
            terms={"imitate": CrossEntropy()},
            optimiser=Optimiser(learning_rate=2e-5),
        )
    },
)

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "sft": {
        "tiny": {
            "sampling.max_new_tokens": 34,
            "phases.student.optimiser": Optimiser(learning_rate=5e-4, betas=(0.9, 0.98), warmup_updates=5).model_dump(),
        }
    }
}
