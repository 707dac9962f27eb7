"""Self-distilled reinforcement learning with verifiable rewards (RLSD): arXiv:2604.03128.

    Â = A·[(1−λ) + λ·clip(w, 1−ε, 1+ε)],   w = exp(sign(A)·Δ_t),   Δ_t = sg[log q(y_t) − log π_old(y_t)]

in PPO's clipped loss. The privileged teacher moves credit between the tokens of a rollout; the verifier's sign stays.
"""

from __future__ import annotations

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import AnswerContext
from training.method import (
    Batch,
    GroupAdvantage,
    Method,
    Optimiser,
    Phase,
    PhaseStartWeights,
    PolicyGradient,
    RlsdModulation,
    StudentWeights,
    View,
)
from training.methods.scales import GROUPED, Changes, tiny

TERM = "phases.student.terms.reward"

RLSD = Method(
    key="rlsd",
    title="RLSD",
    summary="GRPO in which a teacher that knows the answer says which tokens of a rollout deserve the credit.",
    paper="arXiv:2604.03128",
    status="reading",
    equation="PPO clip with Â_t = A·[0.5 + 0.5·clip(exp(sign(A)·Δ_t), 0.8, 1.2)],  Δ_t = log q(y_t) − log π_old(y_t)",
    open_choices={
        "share": "λ stays at 0.5. The repository of SDPG takes it to 0 over 50 steps.",
        "numbers": "Batch, mini-batch, length, optimiser, clips and thinking are SDPG's comparison (arXiv:2606.04036).",
        "context": "The final answer; skills and whole solutions are seen elsewhere.",
        "teacher": "The weights before the update, with context.",
    },
    ablations={
        f"{TERM}.modulation": (None,),
        f"{TERM}.modulation.share": (1.0, {"kind": "linear", "start": 0.5, "end": 0.0, "updates": 50}),
        f"{TERM}.modulation.bound": (0.1, 0.4),
        "views.teacher.context": ("solution", "other_problem"),
        "views.teacher.weights": ("student", "frozen", {"kind": "synced", "every": 1}),
    },
    sampling=SamplingParams(max_new_tokens=4096, temperature=1.0),
    batch=Batch(prompts=128, group_size=8, step_prompts=16),
    views={
        "student": View(weights=StudentWeights(), thinking=True),
        "teacher": View(weights=PhaseStartWeights(), context=AnswerContext(), thinking=True),
    },
    phases={
        "student": Phase(
            terms={
                "reward": PolicyGradient(
                    advantage=GroupAdvantage(epsilon=1e-6), modulation=RlsdModulation(share=0.5, bound=0.2)
                )
            },
            optimiser=Optimiser(learning_rate=1e-6, weight_decay=0.1, warmup_updates=10, max_grad_norm=1.0),
        )
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "rlsd": {"tiny": tiny(RLSD, learning_rate=GROUPED, prompts=8, group_size=8, step_prompts=1)}
}
