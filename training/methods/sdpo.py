"""Self-distillation policy optimization (SDPO): arXiv:2601.20802.

    L = Σ_t D( π_θ(·|x, y_<t), sg π_θ̄(·|x, f, y_<t) ),   y ~ π_θ(·|x)                              (section 2)

f is a successful rollout of the same group, or feedback on the row's own attempt; rows with neither are masked. D is
taken on the student's K likeliest tokens and one tail event. θ̄ is a moving average of θ. Rewards only select.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import PeerSuccessContext
from training.method import (
    JSD,
    Batch,
    Distill,
    EmaWeights,
    FrozenWeights,
    GeometricMix,
    GroupAdvantage,
    Importance,
    Method,
    Optimiser,
    Phase,
    PolicyGradient,
    ReverseKL,
    StudentWeights,
    TeacherLogRatio,
    TopKSupport,
    View,
    override_all,
)
from training.methods.scales import GROUPED, Changes, tiny

TERM = "phases.student.terms.distill"
CONTEXT_TOKENS = 10_240

_SCIENCE = Distill(
    divergence=JSD(beta=0.5),
    support=TopKSupport(k=100, of="student", rest="tail"),
    importance=Importance(clip=2.0),
    sampler_importance_clip=2.0,
    temperature="sampling",
)
_CODE = _SCIENCE.model_copy(update={"divergence": ReverseKL(), "support": TopKSupport(k=20)})


def trust_region(term: Distill) -> dict[str, Any]:
    """``term`` against the live teacher, held by the starting weights: logits 0.01·live + 0.99·initial."""
    mix = GeometricMix(reference="initial", share=0.01, order="mix_first")
    return term.model_copy(update={"against": "live", "mix": mix}).model_dump(mode="json")


def hybrid(term: Distill, share: float = 0.9) -> dict[str, Any]:
    """The terms of ``share`` GRPO and 1 − ``share`` SDPO."""
    reward = PolicyGradient(
        advantage=GroupAdvantage(divide_by_std=False), clip_high=0.28, sampler_importance_clip=2.0, coefficient=share
    )
    distill = term.model_copy(update={"coefficient": round(1 - share, 10)})
    return {"distill": distill.model_dump(mode="json"), "reward": reward.model_dump(mode="json")}


def _views(rate: float, feedback: str) -> dict[str, View]:
    context = PeerSuccessContext(feedback=feedback)  # pyrefly: ignore
    seen: dict[str, Any] = {"context": context, "thinking": False, "max_context_tokens": CONTEXT_TOKENS}
    return {
        "student": View(weights=StudentWeights(), thinking=False),
        "teacher": View(weights=EmaWeights(teacher_update_rate=rate), **seen),
        # Only the trust-region teacher looks through these two.
        "live": View(weights=StudentWeights(), **seen),
        "initial": View(weights=FrozenWeights(), **seen),
    }


def _ablations(term: Distill) -> dict[str, tuple[Any, ...]]:
    return {
        TERM: (
            trust_region(term),
            PolicyGradient(advantage=TeacherLogRatio(), sampler_importance_clip=2.0).model_dump(mode="json"),
        ),
        "phases.student.terms": (hybrid(term),),
        f"{TERM}.support": ("full",),
        f"{TERM}.support.rest": ("renormalise",),
        f"{TERM}.importance": (None,),
        f"{TERM}.sampler_importance_clip": (None,),
        "views.teacher.weights": ("student", "frozen"),
        "views.teacher.context.attempt": (True,),
        "views.teacher.context.exclude_self": (False,),
    }


SDPO_SCIENCE = Method(
    key="sdpo_science",
    title="SDPO, science",
    summary="A moving average of the student, shown a success of the same group, corrects each rollout token by token.",
    paper="arXiv:2601.20802",
    status="paper",
    equation="1/Σm Σ_t m·min(ρ_t, 2)·JSD_½( q_t ‖ p_t ) on the student's top 100 + tail,  q: average, sees a success",
    open_choices={
        "context length": "The code cuts the teacher's prompt at 10,240 tokens; here the context is cut there.",
        "prompt length": "2048 in the paper; prompts are not cut here.",
        "advantage clip": "None; the 5.0 of the test-time table is not in the loss code.",
        "teacher prompt": "The model's privileged template words it; thinking is off on both sides.",
    },
    code_differences={
        "update rate": "The released script for rich feedback passes ema_update_rate, a key that does not exist; the "
        "paper's rate is used.",
        "threshold": "The dataclass says a success has a reward of 1.0, the configuration 0.5: 0.5.",
        "is_clip": "On at 2 in the configuration; the paper's main text does not carry it.",
        "average": "The code leaves the average as it is where the gradient norm is not finite; here such a run stops.",
    },
    ablations={
        **_ablations(_SCIENCE),
        f"{TERM}.divergence": ("reverse_kl", "forward_kl"),
        f"{TERM}.support.k": (20,),
        "views.teacher.weights.teacher_update_rate": (0.01,),
    },
    sampling=SamplingParams(max_new_tokens=8192, temperature=1.0),
    batch=Batch(prompts=32, group_size=8),
    views=_views(0.05, "never"),
    phases={
        "student": Phase(
            terms={"distill": _SCIENCE},
            optimiser=Optimiser(learning_rate=1e-5, weight_decay=0.01, warmup_updates=10, max_grad_norm=1.0),
        )
    },
)

SDPO_CODE = override_all(
    SDPO_SCIENCE,
    {
        "key": "sdpo_code",
        "title": "SDPO, code",
        "summary": "SDPO where the environment says what went wrong: failed attempts are corrected by its report.",
        "equation": "1/Σm Σ_t m·min(ρ_t, 2)·KL( p_t ‖ q_t ) on the student's top 20 + tail,  q sees peer or report",
        TERM: _CODE.model_dump(),
        "batch.step_prompts": 1,
        "views": {name: view.model_dump() for name, view in _views(0.01, "without_peer").items()},
        "phases.student.optimiser.learning_rate": 1e-6,
        "phases.student.optimiser.warmup_updates": 0,
        "open_choices": {
            **SDPO_SCIENCE.open_choices,
            "mini-batch": "1 is read as one question with its 8 rollouts: 32 steps an update.",
        },
        "ablations": {
            **_ablations(_CODE),
            f"{TERM}.divergence": ({"kind": "jsd", "beta": 0.5}, "forward_kl"),
            f"{TERM}.support.k": (100,),
            "views.teacher.weights.teacher_update_rate": (0.05,),
            "views.teacher.context.feedback": ("never", "always"),
            "views.teacher.context": ("environment_feedback",),
            "batch.step_prompts": (None,),
        },
    },
)

SDPO_TTT = override_all(
    SDPO_CODE,
    {
        "key": "sdpo_ttt",
        "title": "SDPO, test-time",
        "summary": "SDPO on a single question until it is solved: sixteen rollouts, one step, again.",
        "status": "reading",
        "batch": Batch(prompts=1, group_size=16).model_dump(),
        "open_choices": {
            **SDPO_SCIENCE.open_choices,
            "advantage clip": "The table lists 5.0, the loss code has none, and none is applied.",
            "data": "One question is one training problem: limit the data to it.",
            "tiny batch": "Four problems of 16, so that an update has 64 rollouts as everywhere else.",
        },
        "ablations": {path: values for path, values in SDPO_CODE.ablations.items() if path != "batch.step_prompts"},
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "sdpo_science": {
        "tiny": {
            **tiny(SDPO_SCIENCE, learning_rate=GROUPED, prompts=8, group_size=8),
            f"{TERM}.support.k": 8,  # a vocabulary of under a hundred tokens
        }
    },
    "sdpo_code": {
        "tiny": {
            **tiny(SDPO_CODE, learning_rate=GROUPED, prompts=8, group_size=8, step_prompts=1),
            f"{TERM}.support.k": 8,
        }
    },
    "sdpo_ttt": {"tiny": {**tiny(SDPO_TTT, learning_rate=GROUPED, prompts=4, group_size=16), f"{TERM}.support.k": 8}},
}
