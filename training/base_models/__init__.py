"""Base models: the embedded tiny ones, SmolLM2 from its package, local folders and hub ids."""

from __future__ import annotations

from training.base_models.catalogue import BASE_MODELS, BaseModelEntry
from training.base_models.recipe import Recipe
from training.base_models.resolve import ResolvedModel, resolve_model

__all__ = ["BASE_MODELS", "BaseModelEntry", "Recipe", "ResolvedModel", "resolve_model"]
