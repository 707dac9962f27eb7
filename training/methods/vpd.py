"""Variational policy distillation (VPD): arXiv:2605.15113, as its summaries tell it.

    M-step, every update:  L = 1/Σ|y| Σ_{i,t} KL( π_θ(·|x, y_<t) ‖ sg q_θ(·|x, C, y_<t) )
    E-step, every fifth:   r̃ = 0.1·Σ_t [log q_θ(y_t|x, C, y_<t) − sg log π_θ(y_t|x, y_<t)],
                           L = mean_+ softplus(−(r̃ − δ)) + mean_− softplus(r̃ − δ),   δ: mean of the two class means

Student and teacher are one set of weights; only the teacher's prompt carries the feedback C. The E-step trains the
teacher's view by unpaired preferences, against the student as it stands when the step begins.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import PeerSuccessContext
from training.method import (
    Batch,
    Distill,
    Method,
    Optimiser,
    Phase,
    PhaseStartWeights,
    Preference,
    ReverseKL,
    StudentWeights,
    TopKSupport,
    View,
)
from training.methods.scales import GROUPED, Changes, tiny

TERM = "phases.student.terms.distill"
PREFERENCE = "phases.teacher.terms.preference"

_OPTIMISER = Optimiser(learning_rate=1e-5, weight_decay=0.01, warmup_updates=10, max_grad_norm=1.0)
_CONTEXT: dict[str, Any] = {"thinking": False, "max_context_tokens": 10_240}

VPD = Method(
    key="vpd",
    title="VPD",
    summary="SDPO with a teacher that is trained too: every fifth update it learns to tell good rollouts from bad.",
    paper="arXiv:2605.15113",
    status="reading",
    equation="M: 1/Σ|y| Σ_t KL(p_t ‖ sg q_t);  E, every 5th: mean₊ softplus(−(r̃−δ)) + mean₋ softplus(r̃−δ),  "
    "r̃ = 0.1·Σ_t log(q_t/sg p_t)",
    open_choices={
        "length": "r̃ is the sum over tokens, cut at ±10; the mean is the alternative.",
        "data": "The E-step sees all rollouts since the last one.",
        "feedback": "SDPO's: a peer's success, else the environment's text. Rows with neither take no part, successes "
        "included. With one class missing δ comes from the other.",
        "shift": "δ keeps no memory; a running mean is the alternative for small batches.",
        "optimiser": "Both steps share AdamW and the learning rate.",
        "divergence": "Reverse KL on the student's top 100 with a tail; batch, lengths and optimiser are SDPO's for "
        "science. The teacher is live, since the weights are shared.",
        "multipliers": "None of SDPO's importance clips: a batch is used for one step.",
        "reduction": "Token mean over kept tokens.",
        "success": "A reward of 0.5 or more.",
    },
    ablations={
        "phases.teacher.every": (1, 10),
        "views.prior.weights": ("frozen",),
        "views.teacher.context": ("environment_feedback", "self_critique", {"kind": "self_critique", "attempt": True}),
        "phases.teacher.rollouts": ("batch",),
        "phases.teacher.optimiser.learning_rate": (1e-6,),
        f"{PREFERENCE}.length": ("mean",),
        f"{PREFERENCE}.bound": (None,),
        f"{PREFERENCE}.shift_rate": (0.1,),
        f"{PREFERENCE}.coefficient": (0.0,),
        f"{TERM}.divergence": ({"kind": "jsd", "beta": 0.5},),
        f"{TERM}.support": ("full",),
        f"{TERM}.support.k": (20,),
    },
    sampling=SamplingParams(max_new_tokens=8192, temperature=1.0),
    batch=Batch(prompts=32, group_size=8),
    views={
        "student": View(weights=StudentWeights(), thinking=False),
        "teacher": View(weights=StudentWeights(), context=PeerSuccessContext(feedback="without_peer"), **_CONTEXT),
        "prior": View(weights=PhaseStartWeights(), thinking=False),
    },
    phases={
        "student": Phase(
            terms={
                "distill": Distill(
                    divergence=ReverseKL(),
                    support=TopKSupport(k=100, of="student", rest="tail"),
                    temperature="sampling",
                )
            },
            optimiser=_OPTIMISER,
        ),
        "teacher": Phase(
            terms={"preference": Preference(of="teacher", against="prior", beta=0.1, length="sum", bound=10.0)},
            optimiser=_OPTIMISER,
            every=5,
            rollouts="since_last",
        ),
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "vpd": {
        "tiny": {
            **tiny(VPD, learning_rate=GROUPED, prompts=8, group_size=8),
            f"{TERM}.support.k": 8,  # a vocabulary of under a hundred tokens
        }
    }
}
