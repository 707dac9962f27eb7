"""Mid-training items with every kind of context, on both worked tasks (no torch here).

Each item has *knowledge*: the facts its context shows, the final answer where that is shown, and the true covered
facts. The response follows the knowledge, also after a replaced result; where the knowledge says nothing, the result
is not trained on. So a half of the contexts can show invented facts, and no uncovered true fact ever leaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from evaluation.benchmarks.worked import step_feedback
from training.base_models.language import CONTEXT_LANGUAGE as LANGUAGE
from training.base_models.recipe import ItemKind, TinyFullRecipe
from training.base_models.tasks import AdditionTask, ChainTask, Path, Source, Task

LARGEST_IRRELEVANT_ROWS = 5


@dataclass(frozen=True, slots=True)
class ContextualItem:
    """``seen`` is the response as the model's input, ``wanted`` as its target; ``scored`` says which targets count."""

    kind: ItemKind
    task: str
    question: str
    context: str | None
    seen: str
    wanted: str
    scored: tuple[bool, ...]


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
        return _MAKERS[kind](_Maker(self, chosen, self.random.random() < self.recipe.random_context_share), kind)

    def _task(self) -> Task:
        chance = self.random.random() < self.recipe.addition_share
        return self.tasks["addition" if chance else "chain"]


class _Maker:
    """Makes one item: draws its path, writes its blocks, follows its knowledge."""

    def __init__(self, stream: ContextualStream, task: Task, invented: bool) -> None:
        self.recipe, self.random = stream.recipe, stream.random
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


def _none(maker: _Maker, kind: ItemKind) -> ContextualItem:
    maker.invented = False
    return maker.response(kind, maker.path(()), [], Knowledge())


def _whole_solution(maker: _Maker, kind: ItemKind) -> ContextualItem:
    path = maker.shown_up_to(maker.task.steps)
    block = LANGUAGE.block("solution" if kind == "solution" else "peer_success", path.solution)
    return maker.response(kind, path, [block], Knowledge(maker.shown(path)))


def _answer(maker: _Maker, kind: ItemKind) -> ContextualItem:
    path = maker.path(maker.task.answer_sources())
    return maker.response(kind, path, [LANGUAGE.block("answer", path.answer)], Knowledge(answer=path.answer))


def _partial(maker: _Maker, kind: ItemKind) -> ContextualItem:
    width = maker.task.row_width + 1
    cut = maker.random.randint(0, width * maker.task.steps)
    count, kept = (cut + 1) // width, maker.chance(0.5)
    path = maker.shown_up_to(count, maker.task.answer_sources() if kept else None)
    answer = path.answer if kept else None
    block = LANGUAGE.block("partial_solution", LANGUAGE.partial(path.solution[:cut], answer))
    return maker.response(kind, path, [block], Knowledge(maker.shown(path, count), answer))


def _facts(maker: _Maker, kind: ItemKind) -> ContextualItem:
    path = maker.shown_up_to(maker.task.steps)
    shown = maker.shown(path)
    for _ in range(maker.random.randint(0, LARGEST_IRRELEVANT_ROWS)):
        key = maker.task.random_key(maker.random, covered=not maker.invented)
        if key not in shown:
            shown[key] = (
                maker.task.invented(key, maker.table, maker.random) if maker.invented else maker.task.truth(key)
            )
    rows = [key + value for key, value in shown.items()]
    maker.random.shuffle(rows)
    return maker.response(kind, path, [LANGUAGE.block("facts", LANGUAGE.facts(rows))], Knowledge(shown))


def _peer_failure(maker: _Maker, kind: ItemKind) -> ContextualItem:
    maker.invented = False
    path = maker.path(())
    attempt, _ = maker.failed_attempt(path, Knowledge())
    return maker.response(kind, path, [LANGUAGE.block("peer_failure", attempt)], Knowledge())


def _remark(maker: _Maker, kind: ItemKind) -> ContextualItem:
    """Feedback or a critique alone: one fact, now and then the answer or a remark without any fact."""
    block = "feedback" if kind == "feedback" else "critique"
    chance = maker.random.random()
    if chance < 0.1:
        path = maker.path(maker.task.answer_sources())
        return maker.response(kind, path, [LANGUAGE.block(block, f"#{path.answer}")], Knowledge(answer=path.answer))
    if chance < 0.2:
        maker.invented = False
        path = maker.path(())
        return maker.response(kind, path, [LANGUAGE.block(block, _empty_remark(maker, path, block))], Knowledge())
    step = maker.random.randrange(maker.task.steps)
    path = maker.shown_at({step})
    shown = {path.keys[step]: path.values[step]}
    return maker.response(kind, path, [LANGUAGE.block(block, path.rows[step])], Knowledge(shown))


def _empty_remark(maker: _Maker, path: Path, block: str) -> str:
    if block == "critique" and maker.chance(0.5):
        return LANGUAGE.all_right
    rows = path.rows
    attempts = (";".join(rows), ";".join(rows[:-1]) + "#", f"{';'.join([*rows, rows[-1]])}#")
    return step_feedback(maker.random.choice(attempts), rows, path.answer)


def _failure_and_remark(maker: _Maker, kind: ItemKind) -> ContextualItem:
    """The failed attempt and a remark on it: its steps before the remark's are right, that step is as remarked."""
    wrong = maker.random.randrange(maker.task.steps)
    path = maker.shown_up_to(wrong + 1)
    knowledge = Knowledge(maker.shown(path, wrong + 1))
    attempt, _ = maker.failed_attempt(path, knowledge, wrong)
    remark = LANGUAGE.block(maker.random.choice(("feedback", "critique")), path.rows[wrong])
    return maker.response(kind, path, [LANGUAGE.block("peer_failure", attempt), remark], knowledge)


def _success_and_remark(maker: _Maker, kind: ItemKind) -> ContextualItem:
    """A passed attempt of a peer, and feedback on the own one, which may be shown too."""
    path = maker.shown_up_to(maker.task.steps)
    knowledge = Knowledge(maker.shown(path))
    attempt, wrong = maker.failed_attempt(path, knowledge)
    blocks = [LANGUAGE.block("peer_success", path.solution)]
    with_attempt, with_feedback = maker.random.choice(((False, True), (False, True), (True, True), (True, False)))
    blocks += [LANGUAGE.block("peer_failure", attempt)] if with_attempt else []
    blocks += [LANGUAGE.block("feedback", path.rows[wrong])] if with_feedback else []
    return maker.response(kind, path, blocks, knowledge)


def _guidance(maker: _Maker, kind: ItemKind) -> ContextualItem:
    steps = range(maker.task.steps)
    do = {step for step in steps if maker.chance(0.5)}
    avoid = {step for step in steps if maker.chance(0.4)}
    if not do | avoid:
        do = {maker.random.choice(steps)}
    path = maker.shown_at(do)
    wrong = [path.keys[step] + _other_value(maker, path.values[step]) for step in avoid]
    right = [path.rows[step] for step in do]
    maker.random.shuffle(right)
    maker.random.shuffle(wrong)
    block = LANGUAGE.block("guidance", LANGUAGE.guidance(right, wrong))
    return maker.response(kind, path, [block], Knowledge({path.keys[step]: path.values[step] for step in do}))


def _other_value(maker: _Maker, value: str) -> str:
    while (other := maker.task.random_value(maker.random)) == value:
        pass
    return other


def _demonstration(maker: _Maker, kind: ItemKind) -> ContextualItem:
    """The own solution as an example, or another problem's, whose facts are true and mostly irrelevant."""
    if maker.chance(0.6):
        path = maker.shown_up_to(maker.task.steps)
        block = LANGUAGE.block("demonstration", path.solution)
        return maker.response(kind, path, [block], Knowledge(maker.shown(path)))
    maker.invented = False
    path, other = maker.path(()), maker.path(())
    block = LANGUAGE.block("demonstration", LANGUAGE.worked_example(other.question, other.solution))
    return maker.response(kind, path, [block], Knowledge())


def _critique_request(maker: _Maker, kind: ItemKind) -> ContextualItem:
    """The model is the critic: over covered facts, or with a solution to compare with."""
    with_solution = maker.chance(0.4)
    maker.invented = maker.invented and with_solution
    path = maker.shown_up_to(maker.task.steps)
    chance = maker.random.random()
    if chance < 0.6:
        attempt, _ = maker.failed_attempt(path, Knowledge(maker.shown(path)))
    elif chance < 0.65:
        attempt = f"{';'.join(path.rows)}#{_other_value(maker, path.answer)}"
    else:
        attempt = path.solution
    right = attempt == path.solution
    critique = LANGUAGE.all_right if right else step_feedback(attempt, path.rows, path.answer)
    blocks = [LANGUAGE.block("solution", path.solution)] if with_solution else []
    context = LANGUAGE.join([*blocks, LANGUAGE.block("critique_request", attempt)])
    scored = (True,) * (len(critique) + 1)
    return ContextualItem(kind, maker.task.name, path.question, context, critique, critique, scored)


_MAKERS: dict[ItemKind, Callable[[_Maker, ItemKind], ContextualItem]] = {
    "none": _none,
    "solution": _whole_solution,
    "answer": _answer,
    "partial_solution": _partial,
    "facts": _facts,
    "peer_success": _whole_solution,
    "peer_failure": _peer_failure,
    "feedback": _remark,
    "critique": _remark,
    "peer_failure_and_remark": _failure_and_remark,
    "peer_success_and_remark": _success_and_remark,
    "guidance": _guidance,
    "demonstration": _demonstration,
    "critique_request": _critique_request,
}


def batches(recipe: TinyFullRecipe) -> Iterator[list[ContextualItem]]:
    """The batches of the recipe's updates, in order."""
    stream = ContextualStream(recipe)
    for _ in range(recipe.steps):
        yield stream.batch()
