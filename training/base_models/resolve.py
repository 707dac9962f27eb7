"""From the name of a model to a folder with its weights, configuration and tokenizer (no torch until one is built)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluation.names import nearest
from training.base_models.cache import Report, make_once
from training.base_models.catalogue import (
    BASE_MODELS,
    DEFAULT_PRIVILEGED_TEMPLATE,
    TINY_PRIVILEGED_TEMPLATE,
    BaseModelEntry,
)
from training.base_models.hashing import TOKENIZER_FILES, WEIGHT_PATTERNS, content_hash, weight_files
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.recipe import Recipe
from training.base_models.tokenizer import CHAT_TEMPLATE
from training.contexts.language import ContextLanguage
from training.spec import ModelSpec

_HUB_PATTERNS = ["*.json", "*.jinja", "*.model", "*.txt", *WEIGHT_PATTERNS]


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this machine. ``content_hash`` belongs to a run's identity, ``path`` does not.

    ``language`` is how its context blocks are written, None where any natural wording will do.
    """

    path: Path
    content_hash: str
    privileged_template: str
    name: str
    language: ContextLanguage | None = None


def resolve_model(spec: ModelSpec, cache: Path) -> ResolvedModel:
    """The folder of ``spec.name``, built, converted or downloaded into ``cache`` when it is not there yet.

    ``name`` is looked up as: a key of BASE_MODELS, which may carry changes of its recipe (``tiny-demo@seed=3`` or
    ``tiny-demo@seed=3,steps=500``); a local folder; a hub id (``owner/name``), unless HF_HUB_OFFLINE forbids the
    network and the local hub cache has no copy. Raises ValueError with the fix otherwise.
    """
    folder, template, language = _locate(spec.name, cache)
    return ResolvedModel(
        path=folder,
        content_hash=content_hash(folder, cache),
        privileged_template=spec.privileged_template or template,
        name=spec.name,
        language=language,
    )


def recipe_of(name: str) -> Recipe | None:
    """The recipe of a tiny base model's name with its changes; None when the name is not one.

    Raises ValueError for an unknown recipe field or a value it refuses.
    """
    key, _, changes = name.partition("@")
    entry = BASE_MODELS.get(key)
    if entry is None or entry.recipe is None:
        return None
    return _changed(entry.recipe, name, changes) if changes else entry.recipe


def _locate(name: str, cache: Path) -> tuple[Path, str, ContextLanguage | None]:
    entry = BASE_MODELS.get(name.partition("@")[0])
    if entry is not None:
        return _known(entry, name, cache), entry.privileged_template, entry.language
    folder = Path(name).expanduser()
    if folder.is_dir():
        _require_model_files(folder)
        return (folder.resolve(), *_manner_of(folder))
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith("/"):
        return _from_hub(name), DEFAULT_PRIVILEGED_TEMPLATE, None
    hint = nearest(name, BASE_MODELS)
    raise ValueError(f"model.name: {name!r} is no base model, no folder and no hub id (owner/name){hint}")


def _manner_of(folder: Path) -> tuple[str, ContextLanguage | None]:
    # A trained and exported tiny model keeps its chat template, and with it the hint token and its characters.
    chat_template = folder / "chat_template.jinja"
    tiny = chat_template.is_file() and chat_template.read_text() == CHAT_TEMPLATE
    return (TINY_PRIVILEGED_TEMPLATE, CONTEXT_LANGUAGE) if tiny else (DEFAULT_PRIVILEGED_TEMPLATE, None)


def _known(entry: BaseModelEntry, name: str, cache: Path) -> Path:
    recipe = recipe_of(name)
    if recipe is None:
        if name != entry.name:
            raise ValueError(
                f"model.name: {entry.name!r} is not built from a recipe: nothing may follow it, got {name!r}"
            )
        from training.base_models import smollm

        return make_once(cache / "base_models" / smollm.cache_key(), f"converting {name}", smollm.convert)
    if entry.shipped is not None and recipe == entry.recipe and _built_from(entry.shipped, recipe):
        return entry.shipped

    def make(destination: Path, report: Report) -> None:
        from training.base_models.build import build

        build(recipe, destination, report)

    return make_once(cache / "base_models" / f"{entry.name}-{recipe.content_hash()[:16]}", f"building {name}", make)


def _built_from(folder: Path, recipe: Recipe) -> bool:
    description = folder / "recipe.json"
    return description.is_file() and json.loads(description.read_text())["recipe_hash"] == recipe.content_hash()


def _changed(recipe: Recipe, name: str, changes: str) -> Recipe:
    values: dict[str, Any] = recipe.model_dump()
    for change in changes.split(","):
        field, equals, value = change.partition("=")
        if field not in values or not equals:
            hint = nearest(field, values)
            raise ValueError(f"model.name: {name!r}: {change!r} is not field=value of a recipe{hint}")
        values[field] = value
    try:
        return type(recipe).model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"model.name: {name!r}: recipe field {where}: {first['msg']}") from error


def _require_model_files(folder: Path) -> None:
    missing = []
    if not (folder / "config.json").is_file():
        missing.append("config.json")
    if not weight_files(folder):
        missing.append(f"weights ({' or '.join(WEIGHT_PATTERNS)})")
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        missing.append(f"a tokenizer ({', '.join(TOKENIZER_FILES)})")
    if missing:
        raise ValueError(
            f"model.name: folder {str(folder)!r} is not a Hugging Face model folder: it lacks {', '.join(missing)}"
        )


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    try:
        folder = Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS, local_files_only=offline))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (
            "HF_HUB_OFFLINE forbids the network and the local hub cache has no copy"
            if offline
            else (f"{type(error).__name__}: {str(error).splitlines()[0]}")
        )
        raise ValueError(
            f"model.name: no folder {name!r} here, and the hub model {name!r} cannot be had ({reason}); "
            "give the path of a local folder with config.json, weights and tokenizer"
        ) from error
    _require_model_files(folder)
    return folder
