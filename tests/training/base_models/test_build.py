"""Mid-training: the same recipe gives the same bytes, the schedule is as stated, the loss falls."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.base_models.build import build, learning_rate_share, main, mid_train, new_model, ragged_loss
from training.base_models.contextual_items import batches
from training.base_models.item_maker import ContextualItem
from training.base_models.recipe import Recipe, TinyFullRecipe
from training.base_models.tokenizer import END, VOCABULARY, encode, question_ids

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


def test_padding_changes_nothing_of_the_ragged_loss() -> None:
    recipe = TinyFullRecipe(hidden_size=32, layers=2, heads=1, mlp_size=32, steps=1)
    (items,) = batches(recipe)
    assert len({item.gap for item in items}) > 10
    torch.manual_seed(0)
    model = new_model(recipe)
    total = count = 0.0
    for item in items:  # one by one, with transformers' own masked loss
        prompt = question_ids(item.question, item.context)
        wanted = [*encode(item.wanted), VOCABULARY[END]]
        inputs = torch.tensor([[*prompt, *encode(item.seen)]])
        targets = torch.full_like(inputs, -100)
        scored = torch.tensor([t if counts else -100 for t, counts in zip(wanted, item.scored, strict=True)])
        targets[0, len(prompt) - 1 :] = scored
        positions = torch.arange(inputs.shape[1])[None]
        positions[0, len(prompt) - 2 :] += item.gap
        logits = model(input_ids=inputs, position_ids=positions, attention_mask=torch.ones_like(inputs)).logits
        loss = torch.nn.functional.cross_entropy(logits[0], targets[0], ignore_index=-100, reduction="sum")
        total += loss.item()
        count += int((targets != -100).sum())
    for groups in (1, 4, 48):
        assert ragged_loss(model, items, groups).item() == pytest.approx(total / count, rel=1e-5)


def test_the_recipe_of_every_context_builds_the_same_bytes(tmp_path: Path) -> None:
    recipe = TinyFullRecipe(hidden_size=32, layers=1, heads=1, mlp_size=32, steps=3, batch=8, warmup_steps=1)
    first, second = build(recipe, tmp_path / "first"), build(recipe, tmp_path / "second")
    assert first == second and "chain_accuracy_with_own_solution" in first
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes(), file.name


def test_every_field_enters_the_hash_of_the_larger_recipe_too() -> None:
    default = TinyFullRecipe()
    assert default.content_hash() != Recipe().content_hash()
    for field in set(TinyFullRecipe.model_fields) - {"kind_weights", "betas"}:
        changed = {field: getattr(default, field) + 1}
        assert default.model_copy(update=changed).content_hash() != default.content_hash(), field
    fewer = {**default.kind_weights, "facts": 0.1}
    assert default.model_copy(update={"kind_weights": fewer}).content_hash() != default.content_hash()


def test_an_unknown_name_is_refused_before_anything_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tiny-demo", "tiny-ful"])
    assert "did you mean 'tiny-full'" in capsys.readouterr().err


def test_a_gap_moves_positions_and_hides_nothing() -> None:
    recipe = TinyFullRecipe(hidden_size=32, layers=2, heads=1, mlp_size=32, steps=1)
    item = next(item for (*items,) in batches(recipe) for item in items if item.kind == "solution" and item.gap > 5)
    torch.manual_seed(0)
    model = new_model(recipe)

    def loss(shown: ContextualItem) -> float:
        return ragged_loss(model, [shown], 1).item()

    assert loss(item) != loss(replace(item, gap=0)), "positions matter"
    turned = str(item.context)[::-1]
    assert turned != item.context
    assert loss(item) != loss(replace(item, context=turned)), "the response still sees the context"
