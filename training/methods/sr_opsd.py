"""Self-referenced on-policy self-distillation (SR-OPSD): arXiv:2608.09745.

    π* ∝ π_θ̄(·|x, c, y_<t)^α · π_ref(·)^(1−α),
    L = 1/Σm Σ_{i,t} m·D_ρ(π* ‖ π_θ),   D_ρ = 1/(ρ−1) · log Σ_a π*(a)^ρ π_θ(a)^(1−ρ)

θ̄ is a moving average of the student, the reference the weights the run started from. Contexts are SDPO's.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import PeerSuccessContext
from training.method import (
    Adapter,
    Batch,
    Distill,
    EmaWeights,
    Entropy,
    FrozenWeights,
    GeometricMix,
    Importance,
    Method,
    Optimiser,
    Phase,
    Renyi,
    StudentWeights,
    TopKSupport,
    View,
    override_all,
)
from training.methods.scales import GROUPED, Changes, tiny

TERM = "phases.student.terms.distill"

_SEEN: dict[str, Any] = {"context": PeerSuccessContext(feedback="without_peer"), "thinking": False}

_ABLATIONS: dict[str, tuple[Any, ...]] = {
    "views.reference.context": ("none",),
    f"{TERM}.mix": (None,),
    f"{TERM}.mix.share": (0.5, 0.7, 0.8, 0.85, 0.95),
    f"{TERM}.mix.order": ("mix_first",),
    f"{TERM}.divergence": ("forward_kl", "reverse_kl", {"kind": "jsd", "beta": 0.5}),
    f"{TERM}.divergence.order": (0.5, 0.7, 0.9),
    f"{TERM}.support": ("full",),
    "views.teacher.weights": ("student", "frozen"),
    "views.teacher.weights.teacher_update_rate": (0.01,),
    "views.reference.weights": ({"kind": "synced", "every": 50},),
    "phases.student.terms.entropy.coefficient": (0.0,),
}

_OPEN = {
    "reference context": "The code shows the reference what the teacher sees; the text does not say.",
    "order": "Tail or renormalisation first, then the mixture, as the code has it.",
    "update rate": "0.05; an earlier branch of the code had 0.01.",
}

SR_OPSD_SCIENCE = Method(
    key="sr_opsd_science",
    title="SR-OPSD, science",
    summary="SDPO's teacher, held by the starting weights and followed by a Rényi divergence that bounds its pull.",
    paper="arXiv:2608.09745",
    status="reading",
    equation="1/Σm Σ_t m·min(ρ_t, 2)·D_0.95( q_t^0.9·ref_t^0.1/Z ‖ p_t ) on the student's top 100 + tail",
    open_choices={
        **_OPEN,
        "optimiser": "Weight decay and gradient norm are SDPO's.",
        "context length": "As in SDPO: the context is cut at 10,240 tokens.",
        "updates": "420 in the scripts; the study's budget decides.",
    },
    code_differences={"reference context": "The code's reference reads the teacher's prompt; the summary is silent."},
    ablations={
        **_ABLATIONS,
        f"{TERM}.support.rest": ("renormalise",),
        f"{TERM}.importance": (None,),
        f"{TERM}.token_clip": (0.05,),
    },
    sampling=SamplingParams(max_new_tokens=8192, temperature=1.0),
    batch=Batch(prompts=32, group_size=8),
    views={
        "student": View(weights=StudentWeights(), thinking=False),
        "teacher": View(weights=EmaWeights(teacher_update_rate=0.05), max_context_tokens=10_240, **_SEEN),
        "reference": View(weights=FrozenWeights(), max_context_tokens=10_240, **_SEEN),
    },
    phases={
        "student": Phase(
            terms={
                "distill": Distill(
                    mix=GeometricMix(reference="reference", share=0.9, order="support_first"),
                    divergence=Renyi(order=0.95),
                    support=TopKSupport(k=100, of="student", rest="tail"),
                    importance=Importance(clip=2.0),
                    sampler_importance_clip=2.0,
                    temperature="sampling",
                ),
                "entropy": Entropy(coefficient=1e-5),
            },
            optimiser=Optimiser(learning_rate=1e-5, weight_decay=0.01, warmup_updates=10, max_grad_norm=1.0),
        )
    },
)

SR_OPSD_MATH = override_all(
    SR_OPSD_SCIENCE,
    {
        "key": "sr_opsd_math",
        "title": "SR-OPSD, math",
        "summary": "SR-OPSD as its mathematics scripts run it: renormalised support, clipped tokens, decaying rate.",
        "equation": "1/Σm Σ_t m·min( D_0.95( q_t^0.9·ref_t^0.1/Z ‖ p_t ), 0.05 ) on the student's top 100",
        f"{TERM}.support.rest": "renormalise",
        f"{TERM}.importance": None,
        f"{TERM}.token_clip": 0.05,
        "sampling": SamplingParams(max_new_tokens=16_384, temperature=0.7, top_p=0.95, top_k=20).model_dump(),
        "batch": Batch(prompts=8, group_size=8).model_dump(),
        "adapter": Adapter(rank=64, alpha=128).model_dump(),
        "views.teacher.max_context_tokens": 16_384,
        "views.reference.max_context_tokens": 16_384,
        "phases.student.optimiser": Optimiser(
            learning_rate=5e-6, decay="linear", total_updates=420, max_grad_norm=0.1
        ).model_dump(),
        "open_choices": {
            **_OPEN,
            "batch": "8 questions of 8 (the 4B script); 16 of 8 for 8B. A note says the paper's table uses one rollout "
            "a question, for which peers cannot exist.",
            "adapter": "LoRA as in the common launcher; another protocol trains all weights.",
            "context": "Peers and feedback as in the verl scripts; another trainer shows the solution.",
            "updates": "The scripts stop at 100 of the schedule's 420.",
            "tiny token_clip": "Off: a clipped token has no gradient, and the divergence of the tiny base lies in "
            "few tokens (see the note on OPSD's clip).",
            "tiny schedule": "Constant.",
        },
        "ablations": {
            **_ABLATIONS,
            f"{TERM}.support.rest": ("tail",),
            f"{TERM}.token_clip": (None,),
            "views.teacher.context": ("solution",),
            "batch.prompts": (16,),
            "batch.group_size": (1,),
            "adapter": (None,),
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "sr_opsd_science": {
        "tiny": {
            **tiny(SR_OPSD_SCIENCE, learning_rate=GROUPED, prompts=8, group_size=8),
            f"{TERM}.support.k": 8,  # a vocabulary of under a hundred tokens
        }
    },
    "sr_opsd_math": {
        "tiny": {
            **tiny(SR_OPSD_MATH, learning_rate=GROUPED, prompts=8, group_size=8),
            f"{TERM}.support.k": 8,
            f"{TERM}.token_clip": None,  # see the open choices
        }
    },
}
