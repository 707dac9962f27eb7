"""Reinforcement learning from a verifier, as the reward-only baselines of self-distillation.

    L = −1/Z Σ_i Σ_t min( ρ_{i,t}·A_i, clip(ρ_{i,t}, 1−ε_l, 1+ε_h)·A_i )

GRPO (arXiv:2402.03300), Dr.GRPO (arXiv:2503.20783), DAPO (arXiv:2503.14476) and the improved GRPO that SDPO compares
itself with differ in A, Z, the clips and the filters. None sees a solution.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.method import (
    Adapter,
    Batch,
    FrozenWeights,
    GroupAdvantage,
    Method,
    Optimiser,
    Overlong,
    Phase,
    PolicyGradient,
    Reward,
    SampledKL,
    StudentWeights,
    View,
    override_all,
)
from training.methods.scales import GROUPED, Changes, tiny

TERM = "phases.student.terms.reward"

_TERM = PolicyGradient(temperature="sampling", reduction="sequence_mean")


def _with_reference_kl(coefficient: float) -> dict[str, Any]:
    kl = SampledKL(estimator="k3", reduction="sequence_mean", coefficient=coefficient)
    return {"reward": _TERM.model_dump(mode="json"), "reference_kl": kl.model_dump(mode="json")}


GRPO = Method(
    key="grpo",
    title="GRPO",
    summary="Rollouts of one problem compete: those the verifier accepts are made likelier, the others less likely.",
    paper="arXiv:2402.03300",
    status="baseline",
    equation="−1/G Σ_i 1/|y_i| Σ_t min(ρ·A_i, clip(ρ, 0.8, 1.2)·A_i),  A_i = (R_i − mean_G) / (std_G + ε)",
    open_choices={
        "numbers": "Batch, length, temperature, adapter and learning rate are those of the baseline in "
        "arXiv:2601.18734v1.",
        "batch": "A batch of 32 is read as its script runs it: 32 rollouts, 4 prompts of 8.",
        "reference KL": "Coefficient 0 as in that baseline (about 0.04 in the original, 0.001 in later ones).",
        "epsilon": "Not stated; 1e-4.",
        "updates per batch": "One, so the ratio ρ is 1 and the clip never binds.",
        "schedule": "Constant learning rate.",
    },
    ablations={
        f"{TERM}.advantage.divide_by_std": (False,),
        f"{TERM}.reduction": ("token_mean", "constant"),
        f"{TERM}.clip_high": (0.28,),
        "batch.group_size": (16, 64),
        "phases.student.terms": (_with_reference_kl(0.04), _with_reference_kl(0.001)),
        "adapter": (None,),
    },
    sampling=SamplingParams(max_new_tokens=16_000, temperature=1.2),
    batch=Batch(prompts=4, group_size=8),
    adapter=Adapter(rank=64, alpha=128),
    # Only the ablation with a reference KL looks through the second view.
    views={"student": View(weights=StudentWeights()), "reference": View(weights=FrozenWeights())},
    phases={"student": Phase(terms={"reward": _TERM}, optimiser=Optimiser(learning_rate=2e-5))},
)

DR_GRPO = override_all(
    GRPO,
    {
        "key": "dr_grpo",
        "title": "Dr.GRPO",
        "summary": "GRPO without its two biases: no division by the group's deviation, none by a response's length.",
        "paper": "arXiv:2503.20783",
        "equation": "−1/(G·L_max) Σ_i Σ_t min(ρ·A_i, clip(ρ, 0.8, 1.2)·A_i),  A_i = R_i − mean_G",
        f"{TERM}.advantage": GroupAdvantage(divide_by_std=False).model_dump(),
        f"{TERM}.reduction": "constant",
        "open_choices": {
            **{name: GRPO.open_choices[name] for name in ("batch", "updates per batch", "schedule")},
            "numbers": "All but the advantage and the normaliser are GRPO's here, so that the two can be compared.",
            "normaliser": "L_max is sampling.max_new_tokens.",
            "tiny learning_rate": "The constant normaliser makes gradients small; AdamW takes that out again.",
        },
        "ablations": {
            f"{TERM}.advantage.divide_by_std": (True,),
            f"{TERM}.reduction": ("token_mean", "sequence_mean"),
        },
    },
)

DAPO = Method(
    key="dapo",
    title="DAPO",
    summary="GRPO with a wider upper clip, token mean, groups of mixed rewards only, and a penalty on long responses.",
    paper="arXiv:2503.14476",
    status="baseline",
    equation="−1/Σ|y_i| Σ_i Σ_t min(ρ·A_i, clip(ρ, 0.8, 1.28)·A_i),  A_i = (R_i − mean_G) / std_G,  0 < passes < G",
    open_choices={
        "batch": "16 rollouts a problem. A mini-batch of 512 is read as 512 rollouts, 32 problems, and the batch as "
        "512 problems.",
        "learning_rate": "1e-6, constant; not on the pages we read.",
        "reward": "1 or 0 before the penalty.",
        "epsilon": "The formula has none; 1e-6 keeps a deviation of 0 finite.",
        "overlong": "Both the filter and the soft penalty are on.",
        "max_draws": "What ten batches of draws yield is used, even if groups are missing.",
        "adapter": "All weights train.",
    },
    ablations={
        "batch.groups": ("all",),
        f"{TERM}.clip_high": (0.2,),
        f"{TERM}.reduction": ("sequence_mean",),
        "reward.overlong": (None,),
        "reward.truncated": ("keep",),
    },
    sampling=SamplingParams(max_new_tokens=20_480, temperature=1.0),
    batch=Batch(prompts=512, group_size=16, step_prompts=32, groups="mixed_rewards"),
    reward=Reward(overlong=Overlong(cache_tokens=4096, penalty=1.0), truncated="drop"),
    views={"student": View(weights=StudentWeights())},
    phases={
        "student": Phase(
            terms={"reward": PolicyGradient(advantage=GroupAdvantage(epsilon=1e-6), clip_low=0.2, clip_high=0.28)},
            optimiser=Optimiser(learning_rate=1e-6),
        )
    },
)

GRPO_IMPROVED = Method(
    key="grpo_improved",
    title="GRPO, improved",
    summary="The stronger GRPO that SDPO is measured against: no deviation, token mean, wider clip, sampler weights.",
    paper="arXiv:2601.20802",
    status="baseline",
    equation="−1/Σ|y_i| Σ_i Σ_t min(π_old/π_sampler, 2)·min(ρ·A_i, clip(ρ, 0.8, 1.28)·A_i),  A_i = R_i − mean_G",
    open_choices={
        "batch": "Mini-batches of 8 of the 32 questions (four steps) at 1e-6; on-policy it is one step at 1e-5.",
        "warm-up": "Not stated for the baseline; 10 steps as in SDPO's own runs.",
    },
    ablations={
        "batch.step_prompts": (None,),
        "phases.student.optimiser.learning_rate": (1e-5,),
        f"{TERM}.advantage.divide_by_std": (True,),
        f"{TERM}.clip_high": (0.2,),
        f"{TERM}.sampler_importance_clip": (None,),
    },
    sampling=SamplingParams(max_new_tokens=8192, temperature=1.0),
    batch=Batch(prompts=32, group_size=8, step_prompts=8),
    views={"student": View(weights=StudentWeights(), thinking=False)},
    phases={
        "student": Phase(
            terms={
                "reward": PolicyGradient(
                    advantage=GroupAdvantage(divide_by_std=False),
                    clip_low=0.2,
                    clip_high=0.28,
                    sampler_importance_clip=2.0,
                )
            },
            optimiser=Optimiser(learning_rate=1e-6, weight_decay=0.01, warmup_updates=10, max_grad_norm=1.0),
        )
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "grpo": {"tiny": tiny(GRPO, learning_rate=GROUPED, prompts=8, group_size=8)},
    "dr_grpo": {"tiny": tiny(DR_GRPO, learning_rate=GROUPED, prompts=8, group_size=8)},
    "dapo": {
        "tiny": {
            **tiny(DAPO, learning_rate=GROUPED, prompts=8, group_size=8, step_prompts=1),
            # A right answer to an addition takes 33 tokens: room to finish, and a penalty that starts behind it.
            "sampling.max_new_tokens": 40,
            "reward.overlong.cache_tokens": 6,
        }
    },
    "grpo_improved": {"tiny": tiny(GRPO_IMPROVED, learning_rate=GROUPED, prompts=8, group_size=8, step_prompts=2)},
}
