"""Every spec is a valid value, says what it is, and its ablations and presets apply."""

from __future__ import annotations

import re
from typing import Any

import pytest

from training.method import Method, override, override_all
from training.methods import METHODS, PRESETS
from training.schedules import Ramp

CELLS = [(key, preset) for key, presets in PRESETS.items() for preset in presets]
ABLATIONS = [
    (key, path, value)
    for key, method in METHODS.items()
    for path, values in method.ablations.items()
    for value in values
]

SCALE = re.compile(
    r"(batch|sampling)\..+|phases\.\w+\.optimiser(\..+)?|adapter|views\.\w+\.(thinking|max_context_tokens)"
    r"|phases\.\w+\.terms\.\w+\.support\.k|reward\.overlong\.cache_tokens"
)
"""What a preset may change freely: size and rate, never the algorithm."""

KEYS = [
    "sft", "off_policy", "seq_kd", "opsd", "opsd_v1", "sdft", "sds", "usd", "tip", "paint_style", "sdpo_science",
    "sdpo_code", "sdpo_ttt", "sr_opsd_science", "sr_opsd_math", "grpo", "dr_grpo", "dapo", "grpo_improved", "rlsd",
    "sdpg_urkl", "sdpg_ufkl", "vpd",
]  # fmt: skip

STATUSES = {
    "paper": {"opsd_v1", "sdpo_science", "sdpo_code", "sdpg_urkl", "sdpg_ufkl"},
    "style": {"paint_style"},
    "baseline": {"sft", "off_policy", "seq_kd", "grpo", "dr_grpo", "dapo", "grpo_improved"},
    "reading": {
        "opsd", "sdft", "sds", "usd", "tip", "sdpo_ttt", "sr_opsd_science", "sr_opsd_math", "rlsd", "vpd",
    },
}  # fmt: skip

PAPERS = {
    "opsd": "2601.18734v3", "opsd_v1": "2601.18734v1", "sdft": "2601.19897", "sds": "2608.07935", "usd": "2608.08176",
    "tip": "2604.14084", "paint_style": "2604.26573", "sdpo_science": "2601.20802", "sdpo_code": "2601.20802",
    "sdpo_ttt": "2601.20802", "sr_opsd_science": "2608.09745", "sr_opsd_math": "2608.09745", "grpo": "2402.03300",
    "dr_grpo": "2503.20783", "dapo": "2503.14476", "grpo_improved": "2601.20802", "rlsd": "2604.03128",
    "sdpg_urkl": "2606.04036", "sdpg_ufkl": "2606.04036", "vpd": "2605.15113",
}  # fmt: skip


def test_every_method_of_the_field_is_there() -> None:
    assert [*METHODS] == KEYS
    assert {key: method.key for key, method in METHODS.items()} == {key: key for key in METHODS}
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    assert set(PRESETS) == set(METHODS)
    assert all("tiny" in presets for presets in PRESETS.values())


def test_status_says_how_much_was_read() -> None:
    assert {status: {k for k, m in METHODS.items() if m.status == status} for status in STATUSES} == STATUSES


def test_papers_are_named() -> None:
    named = {key: method.paper for key, method in METHODS.items() if method.paper is not None}
    assert named == {key: f"arXiv:{number}" for key, number in PAPERS.items()}
    assert all(METHODS[key].status == "baseline" for key in set(METHODS) - set(named))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_says_what_it_is(method: Method) -> None:
    assert method.title and method.equation and method.open_choices and method.ablations
    assert method.summary.endswith(".") and len(method.summary) <= 120
    assert "\n" not in method.equation
    for notes in (method.open_choices, method.code_differences):
        assert all(note.endswith(".") for note in notes.values())


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_specs_survive_json(method: Method) -> None:
    assert Method.model_validate_json(method.model_dump_json()) == method
    assert Method.model_validate(method.model_dump(mode="json")) == method


def _id(value: Any) -> str:
    return re.sub(r"[^\w.=-]+", "-", str(value))[:40]


@pytest.mark.parametrize(("key", "path", "value"), ABLATIONS, ids=_id)
def test_an_ablation_changes_one_value_to_another(key: str, path: str, value: Any) -> None:
    method = METHODS[key]
    changed = override(method, path, value)

    assert changed != method
    before, after = method.model_dump(), changed.model_dump()
    assert {name for name in before if before[name] != after[name]} == {path.split(".")[0]}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_ablation_is_listed_twice(method: Method) -> None:
    results = [override(method, path, value) for path, values in method.ablations.items() for value in values]
    assert all(result not in results[:index] for index, result in enumerate(results))


@pytest.mark.parametrize(("key", "preset"), CELLS)
def test_presets_change_the_scale_and_own_up_to_the_rest(key: str, preset: str) -> None:
    method, changes = METHODS[key], PRESETS[key][preset]
    scaled = override_all(method, changes)

    for path in changes:
        if not SCALE.fullmatch(path):
            leaf = path.rsplit(".", 1)[-1]
            owned = f"{preset} schedule" if leaf == "coefficient" else f"{preset} {leaf}"
            assert owned in method.open_choices, f"{path} changes the algorithm: name it in the open choices"
    assert {name: view.weights for name, view in scaled.views.items()} == {
        n: v.weights for n, v in method.views.items()
    }
    assert {name: view.context for name, view in scaled.views.items()} == {
        n: v.context for n, v in method.views.items()
    }
    assert (scaled.reward.truncated, scaled.controllers) == (method.reward.truncated, method.controllers)


def test_the_tiny_overlong_penalty_spares_complete_answers() -> None:
    tiny = override_all(METHODS["dapo"], PRESETS["dapo"]["tiny"])
    assert tiny.reward.overlong is not None
    complete = len("4+8+0=12;2+7+1=10;8+0+1=09#0902") + 1  # and the end token
    assert complete <= tiny.sampling.max_new_tokens - tiny.reward.overlong.cache_tokens


@pytest.mark.parametrize("key", METHODS)
def test_tiny_presets_share_optimiser_and_length(key: str) -> None:
    tiny = override_all(METHODS[key], PRESETS[key]["tiny"])

    for phase in tiny.phases.values():
        optimiser = phase.optimiser
        assert (optimiser.betas, optimiser.weight_decay, optimiser.warmup_updates) == ((0.9, 0.98), 0.0, 5)
        assert (optimiser.decay, optimiser.max_grad_norm) == ("constant", 1.0)
        assert optimiser.learning_rate == (5e-4 if tiny.batch.group_size == 1 else 1e-4)
    sampling = tiny.sampling
    longest = 40 if tiny.reward.overlong else 34
    assert (sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (longest, 1.0, 1.0, 0)
    assert tiny.batch.prompts * tiny.batch.group_size == 64
    assert tiny.adapter is None
    assert all(view.thinking is None and view.max_context_tokens is None for view in tiny.views.values())


@pytest.mark.parametrize("key", METHODS)
def test_tiny_presets_keep_groups_and_off_policy_steps(key: str) -> None:
    method = METHODS[key]
    tiny = override_all(method, PRESETS[key]["tiny"])

    assert (tiny.batch.group_size > 1) == (method.batch.group_size > 1)
    assert (tiny.batch.step_prompts is None) == (method.batch.step_prompts is None)
    assert tiny.batch.groups == method.batch.groups


@pytest.mark.parametrize("key", ["sdpg_urkl", "sdpg_ufkl"])
def test_the_schedule_of_the_policy_gradient_keeps_its_proportions(key: str) -> None:
    tiny = override_all(METHODS[key], PRESETS[key]["tiny"])
    paper = METHODS[key].phases["student"].terms["distill"].coefficient
    small = tiny.phases["student"].terms["distill"].coefficient

    # 50, 350, 400 against 5, 35, 40: the same course in a tenth of the updates.
    assert isinstance(paper, Ramp) and isinstance(small, Ramp)
    assert all(small.at(k) == pytest.approx(paper.at(10 * k), rel=1e-12) for k in range(1, 41))
