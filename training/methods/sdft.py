"""Self-distillation from demonstrations (SDFT): arXiv:2601.19897, read as a baseline of other works.

    L = 1/T Σ_t KL( q_t ‖ p_t ),  ŷ ~ p_S(·|x),  q_t = p_θ̄(·|x, demonstration, ŷ_<t),  θ̄ ← 0.99·θ̄ + 0.01·θ

Unlike OPSD the teacher moves with the student, and what it sees is a demonstration in the user's turn.
"""

from __future__ import annotations

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import DemonstrationContext
from training.method import Batch, Distill, EmaWeights, ForwardKL, Method, Optimiser, Phase, StudentWeights, View
from training.methods.scales import WIDE, Changes, tiny

TERM = "phases.student.terms.distill"

SDFT = Method(
    key="sdft",
    title="SDFT",
    summary="A moving average of the student, shown a demonstration, corrects the student's own rollouts.",
    paper="arXiv:2601.19897",
    status="reading",
    equation="1/T Σ_t Σ_v q(v)·[log q(v) − log p(v)],  ŷ ~ p_S(·|x),  q: average of the student, sees a demonstration",
    open_choices={
        "source": "The paper was not read: direction, support, teacher, batch and optimiser are those of a later "
        "paper's baseline (full forward KL, rate 0.01, 32 rollouts, 1e-5, gradient norm 1.0).",
        "sampling": "Not stated there; temperature 1.0, 1024 tokens.",
        "demonstration": "The problem's own reference; another training problem's is the alternative.",
        "reduction": "Token mean; one library takes the raw sum.",
        "adapter": "Not stated; all weights train.",
    },
    code_differences={
        "cookbook": "One library renormalises the teacher's 20 likeliest tokens, skips 3 tokens and syncs the teacher "
        "every n steps.",
        "TRL": "Another has a dial over Jensen-Shannon divergences, top-k with a tail, and average, live or base "
        "weights as teacher.",
    },
    ablations={
        f"{TERM}.support": ({"kind": "top_k", "k": 20, "of": "target", "rest": "renormalise"},),
        f"{TERM}.divergence": ("reverse_kl", {"kind": "jsd", "beta": 0.5}),
        f"{TERM}.skip_tokens": (3,),
        f"{TERM}.reduction": ("sequence_mean", "constant"),
        "views.teacher.weights": ("frozen", "student", {"kind": "synced", "every": 10}),
        "views.teacher.context.of": ("another_problem",),
    },
    sampling=SamplingParams(max_new_tokens=1024, temperature=1.0),
    batch=Batch(prompts=32),
    views={
        "student": View(weights=StudentWeights()),
        "teacher": View(weights=EmaWeights(teacher_update_rate=0.01), context=DemonstrationContext()),
    },
    phases={
        "student": Phase(
            terms={"distill": Distill(divergence=ForwardKL(), temperature="sampling")},
            optimiser=Optimiser(learning_rate=1e-5, max_grad_norm=1.0),
        )
    },
)

PRESETS: dict[str, dict[str, Changes]] = {"sdft": {"tiny": tiny(SDFT, learning_rate=WIDE)}}
