"""Mid-training: the same recipe gives the same bytes, the schedule is as stated, the loss falls."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from training.base_models.build import build, learning_rate_share, mid_train, new_model
from training.base_models.recipe import Recipe

MINI = Recipe(hidden_size=32, layers=1, heads=1, mlp_size=32, steps=6, batch=8, warmup_steps=2)


def test_the_same_recipe_gives_the_same_bytes_whatever_the_generator_did_before(tmp_path: Path) -> None:
    first = build(MINI, tmp_path / "first")
    torch.manual_seed(99)
    before = torch.get_rng_state()
    second = build(MINI, tmp_path / "second")
    assert torch.equal(torch.get_rng_state(), before), "a build leaves torch's global generator alone"
    assert first == second
    names = {file.name for file in (tmp_path / "first").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.json", "chat_template.jinja"} <= names
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_another_seed_gives_another_model() -> None:
    one, two = (mid_train(MINI.model_copy(update={"seed": seed})).state_dict() for seed in (0, 1))
    assert any(not torch.equal(one[name], two[name]) for name in one)


def test_the_loss_falls_and_progress_is_reported() -> None:
    seen: list[tuple[int, int, str]] = []
    mid_train(MINI.model_copy(update={"steps": 40}), lambda done, total, figure: seen.append((done, total, figure)))
    assert [report[:2] for report in seen] == [(step, 40) for step in range(1, 41)]
    losses = [float(report[2].removeprefix("loss ")) for report in seen]
    assert losses[0] == pytest.approx(math.log(56), abs=0.3), "an untrained model is near uniform over 56 tokens"
    assert losses[-1] < 0.7 * losses[0]


def test_warm_up_then_cosine_to_a_tenth() -> None:
    recipe = Recipe(steps=400, warmup_steps=50, final_learning_rate_share=0.1)
    assert learning_rate_share(recipe, 0) == pytest.approx(1 / 50)
    assert learning_rate_share(recipe, 49) == 1
    assert learning_rate_share(recipe, 225) == pytest.approx(0.55)  # half-way: 0.1 + 0.9 · cos²(π/4)
    assert learning_rate_share(recipe, 400) == pytest.approx(0.1)


def test_the_architecture_has_the_stated_size() -> None:
    # Embeddings 56·96; a layer: attention 4·96², MLP 3·96·288, norms 2·96 + 2·32; the last norm 96.
    expected = 56 * 96 + 3 * (4 * 96**2 + 3 * 96 * 288 + 2 * 96 + 2 * 32) + 96
    model = new_model(Recipe())
    assert sum(weight.numel() for weight in model.parameters()) == expected == 365_664
    assert all(weight.dtype == torch.float32 for weight in model.parameters())


def test_a_head_that_vllm_refuses_is_refused() -> None:
    below: dict[str, int] = {"head_dim": 16}
    with pytest.raises(ValueError, match="head_dim"):
        Recipe.model_validate(below)


def test_every_field_enters_the_recipe_hash() -> None:
    default = Recipe()
    assert default.content_hash() == Recipe().content_hash()
    for field, value in default.model_dump().items():
        other = (0.5, 0.5) if isinstance(value, tuple) else value * 0.5 if isinstance(value, float) else value + 1
        assert default.model_copy(update={field: other}).content_hash() != default.content_hash(), field
