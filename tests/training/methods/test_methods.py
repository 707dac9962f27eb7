from __future__ import annotations

import re

import pytest

from training.method import Distill, Method, PolicyGradient, override_all
from training.methods import METHODS, PRESETS

CELLS = [(key, preset) for key, presets in PRESETS.items() for preset in presets]
SCALE = re.compile(r"(batch|sampling)\..+|phases\.\w+\.optimiser(\..+)?")
"""What a preset may change."""


def test_keys_name_their_methods() -> None:
    assert {key: method.key for key, method in METHODS.items()} == {key: key for key in METHODS}
    assert set(PRESETS) == set(METHODS)


@pytest.mark.parametrize(("key", "preset"), CELLS)
def test_presets_change_the_scale_and_never_the_algorithm(key: str, preset: str) -> None:
    changes = PRESETS[key][preset]
    scaled = override_all(METHODS[key], changes)

    assert [path for path in changes if not SCALE.fullmatch(path)] == []
    assert scaled.views == METHODS[key].views
    for name, phase in scaled.phases.items():
        assert phase.terms == METHODS[key].phases[name].terms


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_says_what_it_is(method: Method) -> None:
    assert method.title and method.summary and method.equation
    assert method.paper is not None or method.status == "baseline"
    assert "adapter" in method.open_choices


def test_opsd_is_the_third_version_of_the_paper() -> None:
    opsd = METHODS["opsd"]
    term = opsd.terms_of("student")["distill"]

    assert isinstance(term, Distill)
    assert (term.divergence.kind, term.entry_clip, term.temperature) == ("forward_kl", 0.05, 1.1)
    assert (opsd.views["teacher"].weights.kind, opsd.views["teacher"].context.kind) == ("frozen", "solution")
    assert (opsd.views["student"].weights.kind, opsd.views["student"].context.kind) == ("student", "none")
    assert opsd.sampling.model_dump(include={"temperature", "top_p", "top_k", "max_new_tokens"}) == {
        "temperature": 1.1,
        "top_p": 0.95,
        "top_k": 20,
        "max_new_tokens": 1024,
    }
    assert (opsd.batch.prompts, opsd.batch.group_size) == (32, 1)
    optimiser = opsd.phases["student"].optimiser
    assert (optimiser.learning_rate, optimiser.max_grad_norm) == (5e-6, 0.1)


def test_the_first_version_has_jensen_shannon_and_no_clip() -> None:
    term = METHODS["opsd_v1"].terms_of("student")["distill"]

    assert isinstance(term, Distill)
    assert term.divergence.model_dump() == {"kind": "jsd", "beta": 0.5}
    assert (term.entry_clip, term.temperature) == (None, 1.2)


def test_grpo_scales_by_deviation_and_averages_within_sequences() -> None:
    grpo = METHODS["grpo"]
    term = grpo.terms_of("student")["reward"]

    assert isinstance(term, PolicyGradient)
    assert term.advantage.divide_by_std and term.reduction == "sequence_mean"
    assert (term.clip_low, term.clip_high, grpo.batch.group_size) == (0.2, 0.2, 8)


@pytest.mark.parametrize("key", METHODS)
def test_tiny_presets_share_optimiser_and_length(key: str) -> None:
    tiny = override_all(METHODS[key], PRESETS[key]["tiny"])
    optimiser = tiny.phases["student"].optimiser

    assert (optimiser.betas, optimiser.weight_decay, optimiser.warmup_updates) == ((0.9, 0.98), 0.0, 5)
    assert optimiser.max_grad_norm == 1.0
    assert (tiny.sampling.max_new_tokens, tiny.sampling.temperature) == (34, 1.0)
    assert tiny.batch.prompts * tiny.batch.group_size == 64
