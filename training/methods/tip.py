"""Token selection by entropy or divergence (TIP): arXiv:2604.14084, ported from a larger teacher to OPSD.

    L = 1/|𝒯| Σ_{t∈𝒯} D(p_T, p_S)_t,   𝒯: the tokens of each rollout with the highest s = ĥ + δ̂ − ĥ·δ̂

ĥ is the scaled entropy of the student, δ̂ the scaled divergence.
"""

from __future__ import annotations

from training.method import TopTokens, override_all
from training.methods.opsd import OPSD, TERM, UNCLIPPED
from training.methods.scales import WIDE, Changes, tiny

TIP = override_all(
    OPSD,
    {
        "key": "tip",
        "title": "TIP",
        "summary": "OPSD on the fifth of the tokens where the student is unsure or far from the teacher.",
        "paper": "arXiv:2604.14084",
        "status": "reading",
        "equation": "1/|𝒯| Σ_{t∈𝒯} Σ_v min( p_T(v)·[log p_T(v) − log p_S(v)], 0.05 ),  𝒯 = top ⌊0.2·T⌋ by ĥ + δ̂ − ĥ·δ̂",
        f"{TERM}.weighting": TopTokens(keep=0.2, score="soft_or").model_dump(),
        "open_choices": {
            "port": "The paper distils a larger teacher by reverse KL. Here only its selection is put on OPSD v3, with "
            "a fifth kept, as USD compares it.",
            "score": "δ is the unclipped divergence in the loss's own direction.",
            "scaling": "Entropy is cut at the batch's 98th percentile; the minimum and maximum are the batch's.",
            "updates": "300 in USD's comparison; the study's budget decides.",
            "tiny entry_clip": UNCLIPPED,
        },
        "code_differences": {
            "selection": "The public code has a sampler by entropy and Jensen-Shannon divergence that nothing calls, "
            "and no top-k; the selection here is written from the text.",
        },
        "ablations": {
            f"{TERM}.weighting.keep": (0.5, 1.0),
            f"{TERM}.weighting.score": ("entropy", "overconfident"),
            f"{TERM}.weighting": ("uniform",),
            f"{TERM}.divergence": ("reverse_kl",),
            f"{TERM}.entry_clip": (None,),
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "tip": {"tiny": {**tiny(TIP, learning_rate=WIDE), f"{TERM}.entry_clip": None}},  # as in OPSD
}
