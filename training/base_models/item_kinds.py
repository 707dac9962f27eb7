"""One maker of mid-training items for each kind of context (no torch here)."""

from __future__ import annotations

from collections.abc import Callable

from evaluation.benchmarks.worked import step_feedback
from training.base_models.item_maker import ContextualItem, Knowledge, Maker
from training.base_models.language import CONTEXT_LANGUAGE as LANGUAGE
from training.base_models.recipe import ItemKind
from training.base_models.tasks import Path

LARGEST_IRRELEVANT_ROWS = 5


def _none(maker: Maker, kind: ItemKind) -> ContextualItem:
    maker.invented = False
    return maker.response(kind, maker.path(()), [], Knowledge())


def _whole_solution(maker: Maker, kind: ItemKind) -> ContextualItem:
    path = maker.shown_up_to(maker.task.steps)
    block = LANGUAGE.block("solution" if kind == "solution" else "peer_success", path.solution)
    return maker.response(kind, path, [block], Knowledge(maker.shown(path)))


def _answer(maker: Maker, kind: ItemKind) -> ContextualItem:
    path = maker.path(maker.task.answer_sources())
    return maker.response(kind, path, [LANGUAGE.block("answer", path.answer)], Knowledge(answer=path.answer))


def _partial(maker: Maker, kind: ItemKind) -> ContextualItem:
    width = maker.task.row_width + 1
    cut = maker.random.randint(0, width * maker.task.steps)
    count, kept = (cut + 1) // width, maker.chance(0.5)
    path = maker.shown_up_to(count, maker.task.answer_sources() if kept else None)
    answer = path.answer if kept else None
    block = LANGUAGE.block("partial_solution", LANGUAGE.partial(path.solution[:cut], answer))
    return maker.response(kind, path, [block], Knowledge(maker.shown(path, count), answer))


def _facts(maker: Maker, kind: ItemKind) -> ContextualItem:
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


def _peer_failure(maker: Maker, kind: ItemKind) -> ContextualItem:
    maker.invented = False
    path = maker.path(())
    attempt, _ = maker.failed_attempt(path, Knowledge())
    return maker.response(kind, path, [LANGUAGE.block("peer_failure", attempt)], Knowledge())


def _remark(maker: Maker, kind: ItemKind) -> ContextualItem:
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


def _empty_remark(maker: Maker, path: Path, block: str) -> str:
    if block == "critique" and maker.chance(0.5):
        return LANGUAGE.all_right
    rows = path.rows
    attempts = (";".join(rows), ";".join(rows[:-1]) + "#", f"{';'.join([*rows, rows[-1]])}#")
    return step_feedback(maker.random.choice(attempts), rows, path.answer)


def _failure_and_remark(maker: Maker, kind: ItemKind) -> ContextualItem:
    """The failed attempt and a remark on it: its steps before the remark's are right, that step is as remarked."""
    wrong = maker.random.randrange(maker.task.steps)
    path = maker.shown_up_to(wrong + 1)
    knowledge = Knowledge(maker.shown(path, wrong + 1))
    attempt, _ = maker.failed_attempt(path, knowledge, wrong)
    remark = LANGUAGE.block(maker.random.choice(("feedback", "critique")), path.rows[wrong])
    return maker.response(kind, path, [LANGUAGE.block("peer_failure", attempt), remark], knowledge)


def _success_and_remark(maker: Maker, kind: ItemKind) -> ContextualItem:
    """A passed attempt of a peer, and feedback on the own one, which may be shown too."""
    path = maker.shown_up_to(maker.task.steps)
    knowledge = Knowledge(maker.shown(path))
    attempt, wrong = maker.failed_attempt(path, knowledge)
    blocks = [LANGUAGE.block("peer_success", path.solution)]
    with_attempt, with_feedback = maker.random.choice(((False, True), (False, True), (True, True), (True, False)))
    blocks += [LANGUAGE.block("peer_failure", attempt)] if with_attempt else []
    blocks += [LANGUAGE.block("feedback", path.rows[wrong])] if with_feedback else []
    return maker.response(kind, path, blocks, knowledge)


def _guidance(maker: Maker, kind: ItemKind) -> ContextualItem:
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


def _other_value(maker: Maker, value: str) -> str:
    while (other := maker.task.random_value(maker.random)) == value:
        pass
    return other


def _demonstration(maker: Maker, kind: ItemKind) -> ContextualItem:
    """The own solution as an example, or another problem's, whose facts are true and mostly irrelevant."""
    if maker.chance(0.6):
        path = maker.shown_up_to(maker.task.steps)
        block = LANGUAGE.block("demonstration", path.solution)
        return maker.response(kind, path, [block], Knowledge(maker.shown(path)))
    maker.invented = False
    path, other = maker.path(()), maker.path(())
    block = LANGUAGE.block("demonstration", LANGUAGE.worked_example(other.question, other.solution))
    return maker.response(kind, path, [block], Knowledge())


def _critique_request(maker: Maker, kind: ItemKind) -> ContextualItem:
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


MAKERS: dict[ItemKind, Callable[[Maker, ItemKind], ContextualItem]] = {
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
