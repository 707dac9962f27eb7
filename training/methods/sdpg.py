"""Self-distilled policy gradient (SDPG): arXiv:2606.04036.

    L = L_outcome + β(k)·1/Σ|y| Σ_{i,t} 1[A_i > 0]·KL( p_t ‖ sg q_t ) + α·L_K(π_θ, π_ref)           (section 3)
    β(k) = β·min(1, k/T_warm)·min(1, (T−k)/T_decay)

q is the live student with answer and solution in its prompt. L_K is a surrogate on the sampled token whose gradient
vanishes at the reference: URKL ½(log w)², UFKL 1/w + log w, with w = π_θ/π_ref.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import SolutionContext
from training.method import (
    Batch,
    Distill,
    FrozenWeights,
    GroupAdvantage,
    Method,
    Optimiser,
    Phase,
    PolicyGradient,
    ReverseKL,
    SampledKL,
    StudentWeights,
    View,
    override_all,
)
from training.methods.scales import GROUPED, Changes, tiny
from training.schedules import Ramp

TERMS = "phases.student.terms"


def _ablations(*estimators: str) -> dict[str, tuple[Any, ...]]:
    return {
        f"{TERMS}.distill.coefficient": (0.0, 1e-3),  # no distillation; no schedule
        f"{TERMS}.distill.gate": ("all",),
        f"{TERMS}.distill.importance": ({"clip": None, "gradient": False},),
        f"{TERMS}.distill.token_clip": (None,),
        f"{TERMS}.reference_kl.coefficient": (0.0,),
        f"{TERMS}.reference_kl.estimator": estimators,
        f"{TERMS}.reward.clip_high": (0.28,),
        "views.teacher.weights": ("frozen", "ema"),
        "views.teacher.context": ("answer", "other_problem"),
        "reward.overlong": ({"cache_tokens": 512, "penalty": 1.0},),
        "batch": ({"prompts": 256, "group_size": 8, "step_prompts": 32},),
        "batch.step_prompts": (None,),
    }


SDPG_URKL = Method(
    key="sdpg_urkl",
    title="SDPG, URKL",
    summary="GRPO, plus distillation from the student that knows the solution, on good rollouts, near the start.",
    paper="arXiv:2606.04036",
    status="paper",
    equation="PPO clip(A) + β(k)·Σ_t 1[A > 0]·KL(p_t ‖ q_t)/Σ|y| + 1e-3·½·log²(π_θ/π_ref),  q: the student, sees y*",
    open_choices={
        "mini-batch": "16 of the 128 problems, eight steps an update, as the code runs; Algorithm 1 takes one step.",
        "importance": "Distillation and reference terms are not multiplied by ρ, as in the code (appendix A.3 would).",
        "context": "The problem's solution with its answer; the paper's solutions were written by another model.",
        "warm-up": "10 optimiser steps.",
        "temperature": "Both sides of the distillation follow the sampling temperature, as the other terms do; at the "
        "paper's 1.0 every reading is the same.",
        "tiny schedule": "β rises over 5 and falls over 35 of 40 updates, in the paper's proportions.",
    },
    code_differences={
        "gate and schedule": "Off by default in the script; on in the paper's runs and here.",
        "clip": "0.2/0.28 in the script, 0.2/0.2 in the paper. Negative advantages are cut off at 10 in the code.",
        "token_clip": "The code cuts a token's divergence at 20.",
        "filter": "The script asks for a filter of groups that its trainer never reads: there is none.",
        "reward": "The code gives ±1 and a penalty over the last 512 tokens; the paper says binary.",
        "temperature": "The code divides the student's logits only; at temperature 1 it is the same.",
        "name": "The README calls the term forward KL; it is the reverse, as the paper says.",
    },
    ablations=_ablations("ufkl", "rkl", "fkl", "k3"),
    sampling=SamplingParams(max_new_tokens=4096, temperature=1.0),
    batch=Batch(prompts=128, group_size=8, step_prompts=16),
    views={
        "student": View(weights=StudentWeights(), thinking=True),
        "teacher": View(weights=StudentWeights(), context=SolutionContext(), thinking=True),
        "reference": View(weights=FrozenWeights(), thinking=True),
    },
    phases={
        "student": Phase(
            terms={
                "reward": PolicyGradient(
                    advantage=GroupAdvantage(epsilon=1e-6), clip_low=0.2, clip_high=0.2, dual_clip=10.0
                ),
                "distill": Distill(
                    divergence=ReverseKL(),
                    temperature="sampling",
                    gate="positive_advantage",
                    normalise="tokens",
                    token_clip=20.0,
                    coefficient=Ramp(peak=1e-3, warmup_updates=50, decay_updates=350, total_updates=400),
                ),
                "reference_kl": SampledKL(estimator="urkl", normalise="tokens", coefficient=1e-3),
            },
            optimiser=Optimiser(
                learning_rate=1e-6, betas=(0.9, 0.999), weight_decay=0.1, warmup_updates=10, max_grad_norm=1.0
            ),
        )
    },
)

SDPG_UFKL = override_all(
    SDPG_URKL,
    {
        "key": "sdpg_ufkl",
        "title": "SDPG, UFKL",
        "equation": "PPO clip(A) + β(k)·Σ_t 1[A > 0]·KL(p_t ‖ q_t)/Σ|y| + 1e-3·(π_ref/π_θ + log(π_θ/π_ref))",
        "summary": "SDPG held to its start by the surrogate of the forward instead of the reverse KL.",
        f"{TERMS}.reference_kl.estimator": "ufkl",
        "ablations": _ablations("urkl", "rkl", "fkl", "k3"),
    },
)


def _tiny(method: Method) -> Changes:
    ramp = Ramp(peak=1e-3, warmup_updates=5, decay_updates=35, total_updates=40)
    return {
        **tiny(method, learning_rate=GROUPED, prompts=8, group_size=8, step_prompts=1),
        f"{TERMS}.distill.coefficient": ramp.model_dump(mode="json"),
    }


PRESETS: dict[str, dict[str, Changes]] = {
    "sdpg_urkl": {"tiny": _tiny(SDPG_URKL)},
    "sdpg_ufkl": {"tiny": _tiny(SDPG_UFKL)},
}
