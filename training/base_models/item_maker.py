"""What every mid-training item with a context is made of: a path, knowledge of its facts, and a response (no torch).

Each item has *knowledge*: the facts its context shows, the final answer where that is shown, and the true covered
facts. The response follows the knowledge, also after a replaced result; where the knowledge says nothing, the result
is not trained on. So most contexts can show invented facts, and no uncovered true fact ever leaks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from training.base_models.language import CONTEXT_LANGUAGE as LANGUAGE
from training.base_models.recipe import ItemKind, TinyFullRecipe
from training.base_models.tasks import Path, Source, Task


@dataclass(frozen=True, slots=True)
class ContextualItem:
    """``seen`` is the response as the model's input, ``wanted`` as its target; ``scored`` says which targets count.

    ``gap`` positions are left out between the context and the response.
    """

    kind: ItemKind
    task: str
    question: str
    context: str | None
    seen: str
    wanted: str
    scored: tuple[bool, ...]
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What an item's prompt tells, besides the covered facts."""

    shown: dict[str, str] = field(default_factory=dict)
    answer: str | None = None

    def value(self, task: Task, step: int, key: str) -> str | None:
        """The value of ``key``: as shown, as the shown facts or answer imply it, else the truth if it is covered."""
        if key in self.shown:
            return self.shown[key]
        value = task.adjusted(key, self.shown)
        if value is None and self.answer is not None:
            value = task.from_answer(step, key, self.answer)
        return task.truth(key) if value is None and task.is_covered(key) else value


class Maker:
    """Makes one item: draws its path, writes its blocks, follows its knowledge."""

    def __init__(self, recipe: TinyFullRecipe, source: random.Random, task: Task, invented: bool) -> None:
        self.recipe, self.random = recipe, source
        self.task, self.invented = task, invented
        self.table: dict[str, int] = {}

    # Paths

    def path(self, sources: tuple[Source, ...]) -> Path:
        """A path with ``sources``, or over covered facts only when nothing is to be invented."""
        chosen = sources if self.invented else ("covered",) * self.task.steps
        return self.task.draw(chosen, self.table, self.random)

    def shown_up_to(self, count: int, rest: tuple[Source, ...] | None = None) -> Path:
        """A path whose first ``count`` steps are shown and whose others come from ``rest`` (covered by default)."""
        others = rest or ("covered",) * self.task.steps
        return self.path(("shown",) * count + others[count:])

    def shown_at(self, steps: set[int]) -> Path:
        return self.path(tuple("shown" if step in steps else "covered" for step in range(self.task.steps)))

    # Responses

    def response(self, kind: ItemKind, path: Path, blocks: list[str], knowledge: Knowledge) -> ContextualItem:
        """The item whose response solves ``path.question``; some results of its input are replaced."""
        corrupted = self.chance(self.recipe.corrupted_share)
        rate = self.recipe.corruption_rate if corrupted else 0.0
        seen, wanted, scored = "", "", []
        values: list[str] = []
        for step in range(self.task.steps):
            key = self.task.key(path.question, step, values[-1] if values else None)
            right = knowledge.value(self.task, step, key)
            replaced = self.chance(rate) or right is None
            values.append(self.task.random_value(self.random) if replaced or right is None else right)
            asked = (";" if step else "") + key
            seen += asked + values[-1]
            wanted += asked + (right or values[-1])
            scored += [True] * len(asked) + [right is not None] * len(values[-1])
        ending = "#" + self.task.answer(values)
        scored += [True] * (len(ending) + 1)
        context = LANGUAGE.join(blocks)
        return ContextualItem(
            kind, self.task.name, path.question, context, seen + ending, wanted + ending, tuple(scored)
        )

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # Attempts

    def failed_attempt(self, path: Path, knowledge: Knowledge, first_wrong: int | None = None) -> tuple[str, int]:
        """A coherent attempt with a wrong answer, and the index of its first wrong step (``first_wrong`` if given)."""
        while True:
            wrong = self.random.randrange(self.task.steps) if first_wrong is None else first_wrong
            values = [*path.values[:wrong]]
            rows = [*path.rows[:wrong]]
            for step in range(wrong, self.task.steps):
                key = self.task.key(path.question, step, values[-1] if values else None)
                value = None if step == wrong or self.chance(0.3) else knowledge.value(self.task, step, key)
                values.append(self.task.random_value(self.random) if value is None else value)
                rows.append(key + values[-1])
            answer = self.task.answer(values)
            if values[wrong] != path.values[wrong] and answer != path.answer:
                return f"{';'.join(rows)}#{answer}", wrong

    def shown(self, path: Path, count: int | None = None) -> dict[str, str]:
        return dict(list(zip(path.keys, path.values, strict=True))[:count])
