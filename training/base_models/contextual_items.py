"""The stream of mid-training items with every kind of context, on both worked tasks (no torch here)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from training.base_models.item_kinds import MAKERS
from training.base_models.item_maker import ContextualItem, Maker
from training.base_models.recipe import ItemKind, TinyFullRecipe
from training.base_models.tasks import AdditionTask, ChainTask, Task


class ContextualStream:
    """A deterministic stream of mid-training items for ``recipe``, without held-out questions of either benchmark."""

    def __init__(self, recipe: TinyFullRecipe) -> None:
        self.recipe = recipe
        self.random = random.Random(f"contextual items/{recipe.seed}")
        pairs = [(x, y) for x in range(10) for y in range(10)]
        sums = self.random.sample(pairs, recipe.covered_pairs)
        chain_sums = self.random.sample(pairs, recipe.covered_chain_sums)
        products = self.random.sample(pairs, recipe.covered_products)
        self.tasks: dict[str, Task] = {
            "addition": AdditionTask(sums),
            "chain": ChainTask(chain_sums, products),
        }

    def batch(self) -> list[ContextualItem]:
        """The items of one update: a fixed number without context, the others by their weights."""
        without = round(self.recipe.batch * self.recipe.without_context_share)
        weights = self.recipe.kind_weights
        drawn = self.random.choices([*weights], weights=[*weights.values()], k=self.recipe.batch - without)
        kinds: list[ItemKind] = [*(["none"] * without), *drawn]
        return [self.item(kind) for kind in kinds]

    def item(self, kind: ItemKind, task: Task | None = None) -> ContextualItem:
        """One item of ``kind``, on a random task when none is given."""
        chosen = task or self._task()
        invented = self.random.random() < self.recipe.random_context_share
        item = MAKERS[kind](Maker(self.recipe, self.random, chosen, invented), kind)
        return item if kind == "none" else replace(item, gap=self.random.randint(0, self.recipe.largest_gap))

    def _task(self) -> Task:
        chance = self.random.random() < self.recipe.addition_share
        return self.tasks["addition" if chance else "chain"]


def batches(recipe: TinyFullRecipe) -> Iterator[list[ContextualItem]]:
    """The batches of the recipe's updates, in order."""
    stream = ContextualStream(recipe)
    for _ in range(recipe.steps):
        yield stream.batch()
