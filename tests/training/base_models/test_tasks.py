"""The worked tasks as walks over facts: true walks are the benchmarks' solutions, answers imply the right facts."""

from __future__ import annotations

import random

import pytest

from evaluation.benchmarks import addition, chain
from training.base_models.contextual_items import ContextualStream
from training.base_models.recipe import TinyFullRecipe
from training.base_models.tasks import Source, Task

TASKS = ContextualStream(TinyFullRecipe()).tasks


@pytest.fixture(params=sorted(TASKS))
def task(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]


def gold(task: Task, question: str) -> str:
    if task.name == "chain":
        return chain.solution_text(question)
    first, second = map(int, question.split("+"))
    return addition.solution_text((first, second))


def test_a_path_over_covered_facts_is_the_benchmark_solution(task: Task) -> None:
    source = random.Random(1)
    for _ in range(300):
        path = task.draw(("covered",) * task.steps, {}, source)
        assert path.solution == gold(task, path.question)
        assert all(task.is_covered(key) for key in path.keys)
        assert all(len(row) == task.row_width for row in path.rows)


def test_a_shown_path_is_coherent_and_keeps_to_one_invented_table(task: Task) -> None:
    source = random.Random(2)
    for _ in range(300):
        table: dict[str, int] = {}
        path = task.draw(("shown",) * task.steps, table, source)
        for step, key in enumerate(path.keys):
            assert key == task.key(path.question, step, path.values[step - 1] if step else None)
            assert path.values[step] == task.invented(key, table, source), "asked again, the table says the same"
        assert path.answer == task.answer(path.values)


@pytest.mark.parametrize("sources", [("covered",) * 3, ("shown",) * 3, ("covered", "covered", "answer")])
def test_nothing_held_out_is_drawn(task: Task, sources: tuple[Source, ...]) -> None:
    source = random.Random(3)
    held_out = {question for split in ("test", "validation") for question in chain.split_questions()[split]}
    held_out |= {chain.exchanged(question) for question in held_out}
    for _ in range(3_000):
        question = task.draw(sources, {}, source).question
        if task.name == "chain":
            assert question not in held_out
        else:
            assert frozenset(map(int, question.split("+"))) not in addition.held_out_operands()


def test_the_answer_implies_the_tens_of_every_true_sum() -> None:
    task = TASKS["addition"]
    for x in range(10):
        for y in range(10):
            for carry in range(2):
                total = f"{x + y + carry:02d}"
                for step, answer in enumerate((f"000{total[1]}", f"00{total[1]}0", f"0{total[1]}00")):
                    assert task.from_answer(step, f"{x}+{y}+{carry}=", answer) == total


def test_the_answer_of_a_chain_is_its_last_result_only() -> None:
    task = TASKS["chain"]
    assert [task.from_answer(step, "3+5=", "7") for step in range(3)] == [None, None, "7"]


def test_a_sum_with_the_other_carry_is_one_apart() -> None:
    task = TASKS["addition"]
    shown = {"4+8+0=": "12", "2+7+1=": "10", "0+0+0=": "19", "1+1+1=": "00"}
    assert task.adjusted("4+8+1=", shown) == "13"
    assert task.adjusted("2+7+0=", shown) == "09"
    assert task.adjusted("4+7+1=", shown) is None
    assert task.adjusted("0+0+1=", shown) is None and task.adjusted("1+1+0=", shown) is None
    assert TASKS["chain"].adjusted("3+5=", {"3+4=": "7"}) is None
