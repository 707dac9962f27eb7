"""Every method by its key, and the presets that fit it to other scales (values only, no torch).

A preset changes optimiser, adapter, batch, lengths, sampling, support size and the horizons of schedules. Where a
paper's constant stops the learning at a small scale the preset says so, and the method's open choices name it.
"""

from __future__ import annotations

from training.method import Method
from training.methods import (
    grpo,
    off_policy,
    opsd,
    paint_style,
    rlsd,
    sdft,
    sdpg,
    sdpo,
    sds,
    sft,
    sr_opsd,
    tip,
    usd,
    vpd,
)
from training.methods.scales import Changes

METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        sft.SFT,
        off_policy.OFF_POLICY,
        off_policy.SEQ_KD,
        opsd.OPSD,
        opsd.OPSD_V1,
        sdft.SDFT,
        sds.SDS,
        usd.USD,
        tip.TIP,
        paint_style.PAINT_STYLE,
        sdpo.SDPO_SCIENCE,
        sdpo.SDPO_CODE,
        sdpo.SDPO_TTT,
        sr_opsd.SR_OPSD_SCIENCE,
        sr_opsd.SR_OPSD_MATH,
        grpo.GRPO,
        grpo.DR_GRPO,
        grpo.DAPO,
        grpo.GRPO_IMPROVED,
        rlsd.RLSD,
        sdpg.SDPG_URKL,
        sdpg.SDPG_UFKL,
        vpd.VPD,
    )
}

PRESETS: dict[str, dict[str, Changes]] = {
    key: presets
    for module in (
        sft, off_policy, opsd, sdft, sds, usd, tip, paint_style, sdpo, sr_opsd, grpo, rlsd, sdpg, vpd
    )
    for key, presets in module.PRESETS.items()
}  # fmt: skip
"""``PRESETS[method][preset]``: dotted paths into the method and their values, for ``override_all``."""
