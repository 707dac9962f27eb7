"""Group relative policy optimisation (GRPO): arXiv:2402.03300, as the reward-only baseline of self-distillation.

    L = −1/G Σ_i 1/|y_i| Σ_t min( ρ_{i,t}·A_i, clip(ρ_{i,t}, 1−0.2, 1+0.2)·A_i ),   A_i = (R_i − μ_G) / (σ_G + ε)

It sees the verifier's verdict and never the solution.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.method import Batch, Method, Optimiser, Phase, PolicyGradient, StudentWeights, View

GRPO = Method(
    key="grpo",
    title="GRPO",
    summary="Rollouts of one problem compete: those the verifier accepts are made likelier, the others less likely.",
    paper="arXiv:2402.03300",
    status="baseline",
    equation="−1/G Σ_i 1/|y_i| Σ_t min(ρ·A_i, clip(ρ, 0.8, 1.2)·A_i),  A_i = (R_i − mean_G) / (std_G + ε)",
    open_choices={
        "numbers": "Batch, length, temperature and learning rate are those of the baseline in arXiv:2601.18734v1.",
        "batch": "A batch of 32 is read as its script runs it: 32 rollouts, 4 prompts of 8.",
        "reference KL": "Coefficient 0 as in that baseline (about 0.04 in the original).",
        "epsilon": "Not stated; 1e-4.",
        "updates per batch": "One, so the ratio ρ is 1 and the clip never binds.",
        "adapter": "The baseline trains LoRA (rank 64, α 128); here all weights train.",
        "schedule": "Constant learning rate.",
    },
    sampling=SamplingParams(max_new_tokens=16_000, temperature=1.2),
    batch=Batch(prompts=4, group_size=8),
    views={"student": View(weights=StudentWeights())},
    phases={
        "student": Phase(
            terms={"reward": PolicyGradient(temperature="sampling", reduction="sequence_mean")},
            optimiser=Optimiser(learning_rate=2e-5),
        )
    },
)

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "grpo": {
        "tiny": {
            "batch.prompts": 8,
            "sampling.max_new_tokens": 34,
            "sampling.temperature": 1.0,
            "phases.student.optimiser": Optimiser(learning_rate=1e-4, betas=(0.9, 0.98), warmup_updates=5).model_dump(),
        }
    }
}
