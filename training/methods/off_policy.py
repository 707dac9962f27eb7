"""Off-policy distillation of the privileged teacher: OPSD with another source of trajectories.

    soft:      L = 1/T Σ_t D( p_T(·|x, y*, y*_<t) ‖ p_S(·|x, y*_<t) )        on the worked solution itself
    sequence:  L = −1/T Σ_t log p_S(ỹ_t | x, ỹ_<t),  ỹ ~ p_T(·|x, y*)        on what the teacher writes

Divergence, clip, adapter and optimiser are those of OPSD, so that only the trajectories differ.
"""

from __future__ import annotations

from training.method import CrossEntropy, override_all
from training.methods.opsd import OPSD, TERM, UNCLIPPED
from training.methods.scales import WIDE, Changes, tiny

_NUMBERS = "Every other value is that of OPSD (arXiv:2601.18734v3), so that only the trajectories differ."

OFF_POLICY = override_all(
    OPSD,
    {
        "key": "off_policy",
        "title": "Off-policy distillation",
        "summary": "The privileged teacher's distributions, learnt along the worked solution instead of rollouts.",
        "paper": None,
        "status": "baseline",
        "equation": "1/T Σ_t Σ_v min( p_T(v)·[log p_T(v) − log p_S(v)], 0.05 )  at y*_t,  p_T sees x, y*, y*_<t",
        f"{TERM}.data": "references",
        "sampling.max_new_tokens": 16_000,
        "open_choices": {
            "numbers": _NUMBERS,
            "length": "Solutions of up to 16,000 tokens, as in SFT.",
            "tiny entry_clip": UNCLIPPED,
        },
        "code_differences": {},
        "ablations": {
            f"{TERM}.divergence": ("reverse_kl", {"kind": "jsd", "beta": 0.5}),
            f"{TERM}.entry_clip": (None,),
            "views.teacher.weights": ("ema", "student"),
            "views.teacher.context": ("answer", "other_problem"),
        },
    },
)

SEQ_KD = override_all(
    OPSD,
    {
        "key": "seq_kd",
        "title": "Sequence distillation",
        "summary": "The teacher, shown the solution, writes an answer of its own; the student imitates it.",
        "paper": None,
        "status": "baseline",
        "equation": "−1/T Σ_t log p_S(ỹ_t | x, ỹ_<t),  ỹ ~ p_T(·|x, y*)",
        "rollout_view": "teacher",
        "phases.student.terms": {"imitate": CrossEntropy(data="rollouts").model_dump()},
        "open_choices": {
            "numbers": _NUMBERS,
            "filter": "Every sample is imitated, right or wrong; gate passed keeps the right ones.",
        },
        "code_differences": {},
        "ablations": {
            "phases.student.terms.imitate.gate": ("passed",),
            "sampling.temperature": (1.0,),
            "views.teacher.weights": ("ema", "student"),
            "views.teacher.context": ("answer", "none", "other_problem"),
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "off_policy": {"tiny": {**tiny(OFF_POLICY, learning_rate=WIDE), f"{TERM}.entry_clip": None}},  # as in OPSD
    "seq_kd": {"tiny": tiny(SEQ_KD, learning_rate=WIDE)},
}
