"""A method in the style of PAINT (arXiv:2604.26573), whose full text was not found.

    r = |Anch(y*) ∩ Anch(ŷ)| / |Anch(y*)|;  the teacher sees the first 1 − 0.5·r of y*
    z*_t = (1 − γ·b_t)·z_T,t + γ·b_t·sg[z_S,t],   L = 1/T Σ_t D_clip( softmax(z*_t) ‖ p_S )_t

b_t marks the tenth of the tokens where the entropies of teacher and student differ most.
"""

from __future__ import annotations

from training.contexts.specs import OverlapMaskedContext
from training.method import TowardStudent, override_all
from training.methods.opsd import OPSD, TERM, UNCLIPPED
from training.methods.scales import WIDE, Changes, tiny

PAINT_STYLE = override_all(
    OPSD,
    {
        "key": "paint_style",
        "title": "PAINT-style",
        "summary": "OPSD that hides from the teacher what the rollout has already, and softens a few of its targets.",
        "paper": "arXiv:2604.26573",
        "status": "style",
        "equation": "1/T Σ_t Σ_v min( p*(v)·[log p*(v) − log p_S(v)], 0.05 ),  "
        "z* = (1 − 0.1·b)·z_T + 0.1·b·sg[z_S],  p_T sees the first 1 − 0.5·r of y*",
        "views.teacher.context": OverlapMaskedContext(min_hidden=0.0, max_hidden=0.5).model_dump(),
        f"{TERM}.mix": TowardStudent(share=0.1, positions="entropy_gap", top_share=0.1).model_dump(),
        "open_choices": {
            "masking": "Between none and half of the solution is hidden, linearly in the overlap; both ends are ours.",
            "anchors": "Numbers, formulas and boxed answers; the matching rule is ours.",
            "answer": "The final answer survives the masking.",
            "interpolation": "γ of 0.1 toward the student, at a tenth of the tokens; all three are ours.",
            "gap": "The absolute difference of entropies; its sign is not known.",
            "weighting": "Every token counts; one survey reads a loss on the marked tokens only.",
            "numbers": "All others are OPSD v3's.",
            "tiny entry_clip": UNCLIPPED,
        },
        "code_differences": {"code": "No code of the authors was found."},
        "ablations": {
            "views.teacher.context": ("solution",),
            "views.teacher.context.max_hidden": (0.25, 0.75, 1.0),
            "views.teacher.context.keep_answer": (False,),
            f"{TERM}.mix": (None,),
            f"{TERM}.mix.share": (0.05, 0.2),
            f"{TERM}.mix.top_share": (0.05, 0.2),
            f"{TERM}.mix.gap": ("target_higher", "student_higher"),
            f"{TERM}.mix.positions": ("all",),
            f"{TERM}.entry_clip": (None,),
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "paint_style": {"tiny": {**tiny(PAINT_STYLE, learning_rate=WIDE), f"{TERM}.entry_clip": None}},  # as in OPSD
}
