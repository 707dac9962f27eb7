"""From a name to a model folder: shipped, built, local, from the hub, or a readable refusal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from training.base_models import BASE_MODELS, Recipe, ResolvedModel, hashing, resolve_model
from training.base_models.catalogue import DEFAULT_PRIVILEGED_TEMPLATE, TINY_PRIVILEGED_TEMPLATE
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.resolve import recipe_of
from training.spec import ModelSpec

MINI = "tiny-small@hidden_size=32,layers=1,heads=1,mlp_size=32,steps=2,batch=4,warmup_steps=1"


def resolve(name: str, cache: Path) -> ResolvedModel:
    return resolve_model(ModelSpec(name=name), cache)


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    shipped = BASE_MODELS["tiny-small"].shipped
    assert shipped is not None
    return Path(shutil.copytree(shipped, tmp_path / "my model"))


@pytest.mark.parametrize("name", ["tiny-demo", "tiny-small", "tiny-full"])
def test_shipped_models_need_no_cache(name: str, tmp_path: Path) -> None:
    resolved = resolve(name, tmp_path / "cache")
    assert resolved.path == BASE_MODELS[name].shipped
    assert resolved.name == name
    assert resolved.privileged_template == TINY_PRIVILEGED_TEMPLATE
    assert resolved.language is CONTEXT_LANGUAGE
    assert not (tmp_path / "cache").exists()


def test_a_spec_may_set_its_own_privileged_template(tmp_path: Path) -> None:
    spec = ModelSpec(name="tiny-small", privileged_template="{context} {problem}")
    assert resolve_model(spec, tmp_path).privileged_template == "{context} {problem}"


def test_another_recipe_is_built_once_into_the_cache(tmp_path: Path) -> None:
    resolved = resolve(MINI, tmp_path)
    recipe = recipe_of(MINI)
    assert recipe is not None and recipe.layers == 1 and recipe.seed == 2
    assert resolved.path == tmp_path / "base_models" / f"tiny-small-{recipe.content_hash()[:16]}"
    AutoModelForCausalLM.from_pretrained(resolved.path)
    written = (resolved.path / "model.safetensors").stat().st_mtime_ns
    assert resolve(MINI, tmp_path) == resolved
    assert (resolved.path / "model.safetensors").stat().st_mtime_ns == written


def test_changes_that_restate_the_recipe_give_the_shipped_model(tmp_path: Path) -> None:
    recipe = recipe_of("tiny-demo")
    assert recipe is not None
    assert resolve(f"tiny-demo@seed={recipe.seed}", tmp_path).path == BASE_MODELS["tiny-demo"].shipped


def test_a_local_folder_is_itself(own_folder: Path, tmp_path: Path) -> None:
    resolved = resolve(str(own_folder), tmp_path)
    assert resolved.path == own_folder
    assert resolved.content_hash == resolve("tiny-small", tmp_path).content_hash, "content counts, not the place"
    assert resolved.privileged_template == TINY_PRIVILEGED_TEMPLATE, "its chat template is that of the tiny models"
    assert resolved.language is CONTEXT_LANGUAGE
    (own_folder / "chat_template.jinja").write_text("{{ messages }}")
    other = resolve(str(own_folder), tmp_path)
    assert (other.privileged_template, other.language) == (DEFAULT_PRIVILEGED_TEMPLATE, None)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_the_content_hash_follows_every_file_that_matters(own_folder: Path, tmp_path: Path, file: str) -> None:
    before = resolve(str(own_folder), tmp_path).content_hash
    content = bytearray((own_folder / file).read_bytes())
    content[-2] ^= 1
    (own_folder / file).write_bytes(content)
    assert resolve(str(own_folder), tmp_path).content_hash != before


def test_digests_of_big_files_are_remembered_until_they_change(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = resolve(str(own_folder), tmp_path).content_hash
    monkeypatch.setattr(hashing, "_REMEMBERED_FROM_BYTES", 100_000)
    assert resolve(str(own_folder), tmp_path).content_hash == plain
    (note,) = (tmp_path / "digests").iterdir()
    note.write_text("f" * 64)
    assert resolve(str(own_folder), tmp_path).content_hash != plain, "the second time the note is read"
    weights = own_folder / "model.safetensors"
    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 1_000_000))
    assert resolve(str(own_folder), tmp_path).content_hash == plain, "a touched file is hashed again"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", "lacks config.json"),
        ("model.safetensors", "lacks weights"),
        ("tokenizer.json", "lacks a tokenizer"),
    ],
)
def test_an_incomplete_folder_is_refused(own_folder: Path, tmp_path: Path, file: str, message: str) -> None:
    (own_folder / file).unlink()
    with pytest.raises(ValueError, match=message):
        resolve(str(own_folder), tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-dmo", "did you mean 'tiny-demo'"),
        ("zzz", "valid: tiny-demo, tiny-small, tiny-full, smollm2-135m-instruct"),
        ("./nowhere", "no base model, no folder and no hub id"),
        ("/nowhere/at/all", "no base model, no folder and no hub id"),
        ("tiny-demo@sed=1", "did you mean 'seed'"),
        ("tiny-demo@seed", "not field=value"),
        ("tiny-demo@covered_products=50", "not field=value"),
        ("tiny-full@covered_products=101", "recipe field covered_products: Input should be less than or equal to 100"),
        ("tiny-demo@seed=x", "recipe field seed: Input should be a valid integer"),
        ("tiny-demo@head_dim=16", "recipe field head_dim: Input should be greater than or equal to 32"),
        ("smollm2-135m-instruct@seed=1", "not built from a recipe"),
    ],
)
def test_wrong_names_are_refused_with_the_fix(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(name, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_hub_id_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ValueError, match=r"HF_HUB_OFFLINE forbids the network.*give the path of a local folder"
    ) as info:
        resolve("nobody/no-such-model", tmp_path)
    assert "\n" not in str(info.value)


def test_a_hub_id_in_the_local_hub_cache_is_found_offline(own_folder: Path, tmp_path: Path) -> None:
    # The layout of the hub's cache: refs/main names a commit, snapshots/<commit> holds the files. The library reads
    # its cache folder when it is imported, hence the child process.
    repository = tmp_path / "hub" / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(own_folder, repository / "snapshots" / ("0" * 40))
    code = (
        "import sys; from pathlib import Path; from training.base_models import resolve_model; "
        "from training.spec import ModelSpec; "
        "print(resolve_model(ModelSpec(name='someone/tiny'), Path(sys.argv[1])).content_hash)"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == resolve("tiny-small", tmp_path).content_hash


def test_names_and_resolution_of_shipped_models_load_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from training.base_models import resolve_model; "
        "from training.spec import ModelSpec; resolve_model(ModelSpec(name='tiny-demo'), Path('.')); "
        "print(sorted({'torch', 'transformers', 'ray', 'prefect'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_shipped_folder_of_another_recipe_is_not_used(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(MINI)
    assert isinstance(recipe, Recipe)
    description = json.loads((own_folder / "recipe.json").read_text())
    assert description["recipe_hash"] != recipe.content_hash()
    entry = BASE_MODELS["tiny-small"]
    stale = type(entry)(
        name="tiny-small",
        title=entry.title,
        licence=entry.licence,
        privileged_template=entry.privileged_template,
        recipe=recipe,
        shipped=own_folder,
    )
    monkeypatch.setitem(BASE_MODELS, "tiny-small", stale)
    assert resolve("tiny-small", tmp_path).path != own_folder
