"""On-policy self-distillation (OPSD): arXiv:2601.18734.

The student's own rollout ŷ is scored by the weights the run started from, which see the worked solution y*:

    L = E_{ŷ ~ p_S(·|x)} [ 1/T Σ_t D( p_T(·|x, y*, ŷ_<t) ‖ p_S(·|x, ŷ_<t) ) ]          (section 3)

No rollout is graded in the loss, none is used twice, and no gradient reaches the teacher or the sampling.
"""

from __future__ import annotations

from typing import Any

from evaluation.samplers.base import SamplingParams
from training.contexts.specs import SolutionContext
from training.method import (
    JSD,
    Adapter,
    Batch,
    Distill,
    ForwardKL,
    FrozenWeights,
    Method,
    Optimiser,
    Phase,
    PolicyGradient,
    StudentWeights,
    TeacherLogRatio,
    View,
    override_all,
)
from training.methods.scales import WIDE, Changes, smollm2, tiny

TERM = "phases.student.terms.distill"

SAMPLED_TOKEN: dict[str, Any] = PolicyGradient(advantage=TeacherLogRatio()).model_dump(mode="json")
"""The distillation term on the sampled token only: A_t = sg[log p_T(ŷ_t) − log p_S(ŷ_t)]."""

UNCLIPPED = (
    "Off. At 0.05 the tiny base unlearns (.365 to .30 in 40 updates; .98 without): a twentieth of its tokens carry the "
    "divergence, and the clip leaves them no gradient."
)
"""Said by every method whose tiny preset takes the entry clip away."""

_SHARED_ABLATIONS: dict[str, tuple[Any, ...]] = {
    TERM: (SAMPLED_TOKEN,),
    f"{TERM}.temperature": (1.0,),
    f"{TERM}.reduction": ("sequence_mean",),
    f"{TERM}.weighting": ("position",),
    "views.teacher.weights": ({"kind": "ema", "teacher_update_rate": 0.001}, "student"),
    "views.teacher.context": (
        "answer",
        "none",
        "other_problem",
        *({"kind": "partial_solution", "share": share} for share in (0.25, 0.5, 0.75)),
    ),
    "adapter": (None,),
}

OPSD = Method(
    key="opsd",
    title="OPSD",
    summary="The starting weights, shown the solution, correct the student's own rollouts token by token.",
    paper="arXiv:2601.18734v3",
    status="reading",
    equation="1/T Σ_t Σ_v min( p_T(v)·[log p_T(v) − log p_S(v)], 0.05 ),  ŷ ~ p_S(·|x),  p_T sees x, y*, ŷ_<t",
    open_choices={
        "learning_rate": "5e-6 with a gradient norm of 0.1: the scripts after 18 March 2026. Schedule: constant.",
        "updates": "100 in the paper, with the best checkpoint taken; the study's budget decides.",
        "entry_clip": "0.05 as for 1.7B and 4B; 0.06 for 8B.",
        "reduction": "Text: mean of per-sequence means. Default: token mean over the batch, as the code has it.",
        "teacher prompt": "The wording of the transition differs by version; the model's privileged template decides.",
        "reason_first": "A teacher that first writes an analysis of the solution is an option of the code and off.",
        "tiny entry_clip": UNCLIPPED,
    },
    code_differences={
        "temperature": "The code divides both logits by the sampling temperature, which the paper does not say.",
        "token mean": "The code's mean is over one device's micro-batch; here it is over the global batch.",
        "prompts": "Before 18 March 2026 the student's prompt lost its chat template and the loss its alignment.",
        "teacher": "The code's default flag is the current weights; the scripts freeze the teacher, as the paper.",
    },
    ablations={
        f"{TERM}.divergence": ("reverse_kl", {"kind": "jsd", "beta": 0.5}),
        f"{TERM}.entry_clip": (None, 0.06),
        "sampling.max_new_tokens": (2048, 4096),
        "views.teacher.thinking": (False,),
        "views.student.thinking": (True,),
        **_SHARED_ABLATIONS,
    },
    sampling=SamplingParams(max_new_tokens=1024, temperature=1.1, top_p=0.95, top_k=20),
    batch=Batch(prompts=32),
    adapter=Adapter(rank=64, alpha=128),
    views={
        "student": View(weights=StudentWeights(), thinking=False),
        "teacher": View(weights=FrozenWeights(), context=SolutionContext(), thinking=True),
    },
    phases={
        "student": Phase(
            terms={"distill": Distill(divergence=ForwardKL(), entry_clip=0.05, temperature="sampling")},
            optimiser=Optimiser(learning_rate=5e-6, max_grad_norm=0.1),
        )
    },
)

OPSD_V1 = override_all(
    OPSD,
    {
        "key": "opsd_v1",
        "title": "OPSD v1",
        "summary": "OPSD as first published: symmetric Jensen-Shannon divergence without a clip.",
        "paper": "arXiv:2601.18734v1",
        "status": "paper",
        "equation": "1/T Σ_t JSD_½( p_T(·|x, y*, ŷ_<t) ‖ p_S(·|x, ŷ_<t) ),  ŷ ~ p_S(·|x)",
        f"{TERM}.divergence": JSD(beta=0.5).model_dump(),
        f"{TERM}.entry_clip": None,
        "phases.student.optimiser": Optimiser(
            learning_rate=2e-5, decay="cosine", warmup_updates=94, total_updates=938
        ).model_dump(),
        "sampling": SamplingParams(max_new_tokens=2048, temperature=1.2).model_dump(),
        "views.student.thinking": None,
        "views.teacher.thinking": None,
        "open_choices": {
            "learning_rate": "The text says 1e-5, its table 2e-5: the table's.",
            "schedule": "Cosine with a tenth of warm-up, as the text. Its length is not stated: one pass over 30,000 "
            "problems, 938 updates.",
            "max_grad_norm": "Not stated; 1.0.",
            "sampling": "Temperature 1.2 without truncation, as the text; the scripts of March 2026 have 1.1, .95, 20.",
            "reduction": OPSD.open_choices["reduction"],
            "teacher prompt": OPSD.open_choices["teacher prompt"],
            "thinking": "Left to the chat template; the pairing of the third version came later.",
        },
        "ablations": {
            f"{TERM}.divergence": ("forward_kl", "reverse_kl"),
            "sampling.max_new_tokens": (1024, 4096),
            "sampling.temperature": (1.1,),
            "phases.student.optimiser.learning_rate": (1e-5, 2e-4),
            **_SHARED_ABLATIONS,
        },
    },
)

PRESETS: dict[str, dict[str, Changes]] = {
    "opsd": {
        "tiny": {**tiny(OPSD, learning_rate=WIDE), f"{TERM}.entry_clip": None},  # at 0.05 nothing is learnt here
        "smollm2": smollm2(OPSD),
    },
    "opsd_v1": {"tiny": tiny(OPSD_V1, learning_rate=WIDE), "smollm2": smollm2(OPSD_V1)},
}
