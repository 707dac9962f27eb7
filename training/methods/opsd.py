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
    Batch,
    Distill,
    ForwardKL,
    FrozenWeights,
    Method,
    Optimiser,
    Phase,
    StudentWeights,
    View,
    override_all,
)

OPSD = Method(
    key="opsd",
    title="OPSD",
    summary="The starting weights, shown the solution, correct the student's own rollouts token by token.",
    paper="arXiv:2601.18734v3",
    status="reading",
    equation="1/T Σ_t Σ_v min( p_T(v)·[log p_T(v) − log p_S(v)], 0.05 ),  ŷ ~ p_S(·|x),  p_T sees x, y*, ŷ_<t",
    open_choices={
        "adapter": "The paper trains LoRA (rank 64, α 128); here all weights train.",
        "learning_rate": "5e-6 with a gradient norm of 0.1, constant: the values of the scripts after 18 March 2026.",
        "entry_clip": "0.05 as for 1.7B and 4B; 0.06 for 8B. Measured on the tiny base (confident; 5 % of the tokens "
        "carry the divergence) it stops learning: .365 to .30 in 40 updates, .98 without it. Plans for it say null.",
        "reduction": "Text: mean of per-sequence means. Default: token mean over the batch, as the code has it.",
        "teacher prompt": "The wording of the transition differs by version; the model's privileged template decides.",
        "thinking": "The paper pairs a non-thinking student with a thinking teacher; here both use one template.",
    },
    code_differences={
        "temperature": "The code divides both logits by the sampling temperature, which the paper does not say.",
        "token mean": "The code's mean is over one device's micro-batch; here it is over the global batch.",
        "prompts": "Before 18 March 2026 the student's prompt lost its chat template and the loss its alignment.",
    },
    sampling=SamplingParams(max_new_tokens=1024, temperature=1.1, top_p=0.95, top_k=20),
    batch=Batch(prompts=32),
    views={
        "student": View(weights=StudentWeights()),
        "teacher": View(weights=FrozenWeights(), context=SolutionContext()),
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
        "equation": "1/T Σ_t JSD_½( p_T(·|x, y*, ŷ_<t) ‖ p_S(·|x, ŷ_<t) ),  ŷ ~ p_S(·|x)",
        "phases.student.terms.distill.divergence": JSD(beta=0.5).model_dump(),
        "phases.student.terms.distill.entry_clip": None,
        "phases.student.optimiser.learning_rate": 2e-5,
        "phases.student.optimiser.max_grad_norm": 1.0,
        "sampling": SamplingParams(max_new_tokens=2048, temperature=1.2).model_dump(),
        "open_choices": {
            **{name: text for name, text in OPSD.open_choices.items() if name != "entry_clip"},
            "learning_rate": "The text says 1e-5, its table 2e-5: the table's. Its cosine decay is not applied.",
            "max_grad_norm": "Not stated; 1.0.",
            "sampling": "Temperature 1.2 without truncation, as the text; the scripts of March 2026 have 1.1, .95, 20.",
        },
    },
)

_TINY: dict[str, Any] = {
    "batch.prompts": 64,
    "sampling.max_new_tokens": 34,
    "sampling.temperature": 1.0,
    "sampling.top_p": 1.0,
    "sampling.top_k": 0,
    "phases.student.optimiser": Optimiser(learning_rate=5e-4, betas=(0.9, 0.98), warmup_updates=5).model_dump(),
}
_SMOLLM2: dict[str, Any] = {
    **_TINY,
    "batch.prompts": 16,
    "sampling.max_new_tokens": 24,
    "sampling.temperature": 0.5,  # at 1.0 a model of this size wanders off within a line
    "phases.student.optimiser": Optimiser(learning_rate=5e-5, betas=(0.9, 0.98), warmup_updates=3).model_dump(),
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "opsd": {"tiny": _TINY, "smollm2": _SMOLLM2},
    "opsd_v1": {"tiny": _TINY, "smollm2": _SMOLLM2},
}
