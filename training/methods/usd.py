"""Unified on-policy self-distillation (USD): arXiv:2608.08176.

    L = Σ_t w_t·g_t / Σ_t w_t,  w_t = σ((g_t − λ·d_t)/τ),  g_t = KL(p_T^β ‖ p_S)_t,
    d_t = [log p_T^β(a*) − log p_S(a*)]₊ at the teacher's likeliest a*

The teacher sees the first β of the solution. λ and β follow load = Σ_t w_t·d_t / N against the capacity ε.
"""

from __future__ import annotations

from typing import Any

from training.contexts.specs import PartialSolutionContext
from training.method import UsdController, UsdSoft, override_all
from training.methods.opsd import OPSD, TERM, UNCLIPPED
from training.methods.scales import WIDE, Changes, tiny
from training.schedules import Controlled

_PRICE = Controlled(controller="usd", output="price")
_SHARE = Controlled(controller="usd", output="share")


def _fixed(share: Any) -> dict[str, Any]:
    return PartialSolutionContext(share=share).model_dump(mode="json")


USD = override_all(
    OPSD,
    {
        "key": "usd",
        "title": "USD",
        "summary": "OPSD that shows the teacher as much, and weighs tokens as far, as the student can take.",
        "paper": "arXiv:2608.08176",
        "status": "reading",
        "equation": "Σ_t w_t·g_t / Σ_t w_t,  w = σ((g − λ·d)/0.1),  g = KL(p_T^β ‖ p_S),  "
        "λ ← [λ + 0.1·(load − 0.3)]₊,  β ← clip(β + 0.03·(0.3 − load), 0.1, 1)",
        "views.teacher.context": PartialSolutionContext(share=_SHARE).model_dump(),
        f"{TERM}.weighting": UsdSoft(price=_PRICE, sharpness=0.1).model_dump(),
        "controllers": {"usd": UsdController().model_dump()},
        "open_choices": {
            "unit": "The text cuts characters and counts tokens: ⌊β·L⌋ tokens; characters are the alternative.",
            "weighting.divergence": "The clip of 0.05 acts in the loss, per vocabulary entry; the weight takes the "
            "unclipped divergence.",
            "gradient": "None through w, d and Σw.",
            "temperature": "Not stated; the sampling temperature, as in OPSD's code.",
            "thinking": "The paper says non-thinking; its numbers match OPSD v3's pairing, which is the default.",
            "order": "load with the weights before the step, then λ, then β, once an update.",
            "normaliser": "Σw and N over the global batch.",
            "updates": "300 in the paper, best checkpoint taken; the study's budget decides.",
            "tiny entry_clip": UNCLIPPED,
        },
        "code_differences": {"code": "No code of the authors was found."},
        "ablations": {
            f"{TERM}.weighting": (
                "uniform",  # privileged side only
                {"kind": "usd_hard", "price": _PRICE.model_dump(mode="json")},
            ),
            "views.teacher.context": (  # "solution": token side only; then fixed β and linear schedules
                "solution",
                *(_fixed(share) for share in (0.25, 0.5, 0.75, 1.0)),
                _fixed({"kind": "linear", "start": 0.25, "end": 1.0, "updates": 300}),
                _fixed({"kind": "linear", "start": 1.0, "end": 0.25, "updates": 300}),
                "answer",
            ),
            "views.teacher.context.unit": ("characters",),
            "views.teacher.context.keep_answer": (False,),
            "controllers.usd.capacity": (0.15, 0.2, 0.4, 0.5, 0.8),
            "controllers.usd.price_rate": (0.0,),
            "controllers.usd.share_rate": (0.0,),
            f"{TERM}.weighting.divergence": ("clipped",),
            f"{TERM}.weighting.sharpness": (0.05, 0.2),
            f"{TERM}.entry_clip": (None,),
            f"{TERM}.temperature": (1.0,),
            f"{TERM}.reduction": ("sequence_mean",),
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "usd": {"tiny": {**tiny(USD, learning_rate=WIDE), f"{TERM}.entry_clip": None}},  # as in OPSD
}
