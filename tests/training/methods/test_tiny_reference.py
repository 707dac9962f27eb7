"""The tiny presets: what they change in a loss, and those losses against the references."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from tests.training.methods.comparison import RENYI, SINGLE, agree
from tests.training.methods.reference import imitation, paint, sdpg, sdpo, sr_opsd, tip, usd, vpd
from tests.training.methods.reference.rows import Row
from tests.training.methods.runs import TEMPERATURE, draw, paper
from training.methods import METHODS, PRESETS

SCORES = (1.0, 0.0, 1.0, 0.0, 0.0, 1.0)
COMPARED = {"entry_clip", "k", "token_clip", "coefficient"}
"""Fields of terms that tiny presets set, all of them compared below."""

LOSSES: dict[str, Callable[[Sequence[Row]], torch.Tensor]] = {
    "opsd": lambda rows: imitation.soft_distillation(rows, temperature=TEMPERATURE),
    "opsd_v1": lambda rows: imitation.soft_distillation(rows, kind="jsd", temperature=TEMPERATURE),
    "usd": lambda rows: usd.usd(rows, price=0.0, entry_clip=None, temperature=TEMPERATURE),
    "tip": lambda rows: tip.tip(rows, kind="forward_kl", temperature=TEMPERATURE),
    "paint_style": lambda rows: paint.paint(rows, entry_clip=None, temperature=TEMPERATURE),
    "sdpo_science": lambda rows: sdpo.sdpo(rows, alpha=0.5, k=8, sampler_clip=2.0, temperature=TEMPERATURE),
    "sdpo_code": lambda rows: sdpo.sdpo(rows, alpha=1, k=8, sampler_clip=2.0, temperature=TEMPERATURE),
    "sdpo_ttt": lambda rows: sdpo.sdpo(rows, alpha=1, k=8, sampler_clip=2.0, temperature=TEMPERATURE),
    "sr_opsd_science": lambda rows: sr_opsd.sr_opsd(
        rows, k=8, sampler_clip=2.0, entropy_bonus=1e-5, temperature=TEMPERATURE
    ),
    "sr_opsd_math": lambda rows: sr_opsd.sr_opsd(
        rows,
        k=8,
        rest="renormalise",
        importance_clip=None,
        sampler_clip=2.0,
        entropy_bonus=1e-5,
        temperature=TEMPERATURE,
    ),
    "vpd": lambda rows: vpd.m_step(rows, k=8, temperature=TEMPERATURE),
}
"""Per method: its tiny loss on the rollouts of a first update."""


@pytest.mark.parametrize("key", [key for key in METHODS if "tiny" in PRESETS.get(key, {})])
def test_tiny_presets_change_in_terms_only_what_is_compared(key: str) -> None:
    changed = {path.rpartition(".")[2] for path in PRESETS[key]["tiny"] if ".terms." in path}
    assert changed <= COMPARED
    assert not changed or key in LOSSES or key == "off_policy" or key.startswith("sdpg")


@pytest.mark.parametrize("key", [*LOSSES])
def test_tiny(key: str) -> None:
    method = paper(key, prompts=2, group_size=3, preset="tiny")
    single = RENYI if key.startswith("sr_opsd") else SINGLE
    agree(method, draw(method, SCORES), lambda tell, now, begun: LOSSES[key](tell.rollouts(now, begun)), single=single)


def test_tiny_distillation_on_references() -> None:
    method = paper("off_policy", preset="tiny")
    agree(
        method,
        draw(method),
        lambda tell, now, begun: imitation.soft_distillation(tell.references(now, begun), temperature=TEMPERATURE),
    )


@pytest.mark.parametrize("update", [2, 30])
@pytest.mark.parametrize("key", ["sdpg_urkl", "sdpg_ufkl"])
def test_tiny_sdpg(key: str, update: int) -> None:
    method = paper(key, prompts=2, group_size=3, preset="tiny")
    beta = sdpg.schedule(update, warmup=5, decay=35, total=40)
    agree(
        method,
        draw(method, SCORES),
        lambda tell, now, begun: sdpg.sdpg(
            tell.rollouts(now, begun),
            beta=beta,
            surrogate=key.removeprefix("sdpg_"),
            temperature=TEMPERATURE,
        ),
        update=update,
    )
