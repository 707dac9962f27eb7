"""The shipped tiny models: ordinary Hugging Face folders that know some sums and read their context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.chain import CHAIN
from training.base_models import BASE_MODELS, BaseModelEntry, Recipe
from training.base_models.accuracy import accuracy, addition_accuracy
from training.base_models.build import build
from training.base_models.context_table import Base, cases, rows
from training.base_models.tokenizer import END, PAD, VOCABULARY

PARAMETERS = {"tiny-demo": 365_664, "tiny-full": 860_544, "tiny-small": 110_528}
LARGEST_FILE = {"tiny-demo": 760_000, "tiny-full": 2_000_000, "tiny-small": 760_000}
"""Bytes of the weights."""
HELPFUL = (
    "answer",
    "partial_solution, half, answer kept",
    "guidance: every step to do",
    "guidance: first wrong step, do and avoid",
    "demonstration, own reference",
    "peer_success + attempt + feedback",
    "feedback",
    "attempt + feedback",
)
"""Kinds of context that the base is better with, on both tasks."""
READS_SOLUTIONS = {"tiny-demo": 0.98, "tiny-full": 0.95, "tiny-small": 0.98}
"""Least accuracy with the own solution in view."""
REBUILD_TOLERANCE = 0.10
"""Another processor rounds otherwise; over 200 problems this is three standard errors."""


@pytest.fixture(params=sorted(PARAMETERS))
def entry(request: pytest.FixtureRequest) -> BaseModelEntry:
    return BASE_MODELS[request.param]


def folder_and_recipe(entry: BaseModelEntry) -> tuple[Path, Recipe]:
    assert entry.shipped is not None and entry.recipe is not None
    return entry.shipped, entry.recipe


def test_the_description_is_of_this_recipe(entry: BaseModelEntry) -> None:
    folder, recipe = folder_and_recipe(entry)
    description = json.loads((folder / "recipe.json").read_text())
    assert type(recipe).model_validate(description["recipe"]) == recipe
    assert description["recipe_hash"] == recipe.content_hash()
    assert (folder / "model.safetensors").stat().st_size < LARGEST_FILE[entry.name]


def test_it_is_an_ordinary_hugging_face_model(entry: BaseModelEntry) -> None:
    folder, recipe = folder_and_recipe(entry)
    assert all(weight.dtype == torch.bfloat16 for weight in load_file(folder / "model.safetensors").values())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert isinstance(model, Qwen3ForCausalLM) and model.dtype == torch.float32
    assert sum(weight.numel() for weight in model.parameters()) == PARAMETERS[entry.name]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    config = AutoConfig.from_pretrained(folder)
    assert config.head_dim == recipe.head_dim >= 32
    assert config._attn_implementation == model.config._attn_implementation == "eager"
    assert config.max_position_embeddings == recipe.max_positions
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (
        VOCABULARY[END],
        VOCABULARY[PAD],
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == config.vocab_size == len(VOCABULARY)


def test_it_knows_some_sums_and_reads_its_context(entry: BaseModelEntry) -> None:
    folder, _ = folder_and_recipe(entry)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    measured = json.loads((folder / "recipe.json").read_text())["measured"]
    alone = addition_accuracy(model, "nothing")
    assert 0.2 <= alone <= 0.5
    assert alone == pytest.approx(measured["accuracy"], abs=0.02)  # greedy decoding on another processor
    assert addition_accuracy(model, "own_solution", 100) >= READS_SOLUTIONS[entry.name]
    assert addition_accuracy(model, "other_solution", 100) <= 0.02


@pytest.mark.parametrize(
    ("name", "recipe_hash"),
    [
        ("tiny-demo", "9daf24a93068c2509f486b21664215bcdb30753e3865bdf9d94bbc0db513049f"),
        ("tiny-small", "602e102ae945b37c7241fa755d9715642507b05c914547c42d3e467fa49dc3d2"),
    ],
)
def test_the_older_recipes_have_not_changed(name: str, recipe_hash: str) -> None:
    _, recipe = folder_and_recipe(BASE_MODELS[name])
    assert type(recipe) is Recipe and recipe.content_hash() == recipe_hash


def test_tiny_full_knows_some_chains_and_uses_every_informative_context() -> None:
    folder, _ = folder_and_recipe(BASE_MODELS["tiny-full"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    measured = json.loads((folder / "recipe.json").read_text())["measured"]
    alone = accuracy(model, CHAIN, "nothing")
    assert 0.3 <= alone <= 0.7
    assert alone == pytest.approx(measured["chain_accuracy"], abs=0.02)
    assert accuracy(model, CHAIN, "own_solution", 100) >= 0.98
    # One digit is the answer: another problem's is the own one for every seventh problem or so.
    assert accuracy(model, CHAIN, "other_solution", 100) <= 0.25
    for benchmark in (ADDITION, CHAIN):
        base = Base(model, benchmark)
        found = {row.kind: row for row in rows(base, cases(base, benchmark.load("validation", limit=60)))}
        for kind in HELPFUL:
            assert found[kind].own >= found[kind].without + 0.1, (benchmark.name, kind)
            assert found[kind].own >= found[kind].other + 0.1, (benchmark.name, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-demo", "tiny-small"])
def test_the_script_builds_it_again(name: str, tmp_path: Path) -> None:
    assert_rebuilt(BASE_MODELS[name], tmp_path)


@pytest.mark.drill
@pytest.mark.timeout(3600)
def test_the_script_builds_tiny_full_again(tmp_path: Path) -> None:
    assert_rebuilt(BASE_MODELS["tiny-full"], tmp_path)


def assert_rebuilt(entry: BaseModelEntry, tmp_path: Path) -> None:
    folder, recipe = folder_and_recipe(entry)
    shipped = json.loads((folder / "recipe.json").read_text())["measured"]
    rebuilt = build(recipe, tmp_path)
    assert rebuilt.keys() == shipped.keys()
    for name in rebuilt:
        assert rebuilt[name] == pytest.approx(shipped[name], abs=REBUILD_TOLERANCE), name
    assert rebuilt["accuracy_with_own_solution"] >= READS_SOLUTIONS[entry.name]
    assert rebuilt["accuracy_with_other_solution"] <= 0.02
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in folder.iterdir()}
