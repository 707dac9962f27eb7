"""Mid-training items with every kind of context: nothing held out, no uncovered fact, contexts that must be read."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest

from evaluation.benchmarks import BENCHMARKS, addition, chain
from evaluation.problems import Message, Problem
from training.base_models.contextual_items import ContextualStream, batches
from training.base_models.item_kinds import MAKERS
from training.base_models.item_maker import ContextualItem, Knowledge
from training.base_models.items import ItemStream
from training.base_models.recipe import ItemKind, Recipe, TinyFullRecipe
from training.base_models.tokenizer import encode, question_ids

RECIPE = TinyFullRecipe()
FACT = re.compile(r"(\d\+\d\+\d=)(\d\d)|(?<![\d+*])(\d[+*]\d=)(\d)")
KINDS = sorted(MAKERS)


def facts(text: str) -> list[tuple[str, str, int]]:
    """(key, value, position of the value) of every fact written in ``text``."""
    found = FACT.finditer(text)
    return [(m[1] or m[3], m[2] or m[4], m.start(2) if m[1] else m.start(4)) for m in found]


def problem(item: ContextualItem) -> Problem:
    question = (Message(role="user", content=item.question),)
    if item.task == "chain":
        solution = chain.solution_text(item.question)
    else:
        first, second = map(int, item.question.split("+"))
        solution = addition.solution_text((first, second))
    answer = solution.rpartition("#")[2]
    return Problem(id="x", benchmark=item.task, split="train", prompt=question, answer=answer, solution=solution)


def items(kind: ItemKind, count: int, recipe: TinyFullRecipe = RECIPE) -> list[ContextualItem]:
    stream = ContextualStream(recipe)
    return [stream.item(kind) for _ in range(count)]


def test_the_streams_of_the_older_recipes_have_not_changed() -> None:
    digests = []
    for recipe in (Recipe(seed=1), Recipe(hidden_size=64, layers=2, heads=2, mlp_size=192, steps=900, seed=2)):
        stream = ItemStream(recipe)
        made = [item for _ in range(200) for item in (stream.without_context(), stream.with_context())]
        text = "\n".join(f"{item.question} {item.context} {item.seen} {item.wanted}" for item in made)
        digests.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    assert digests == ["77d947cff1435f82", "0bc30ff861a4616a"]


def test_a_seed_decides_the_stream_and_every_kind_comes_at_its_rate() -> None:
    few = RECIPE.model_copy(update={"steps": 3})
    assert [*batches(few)] == [*batches(few)]
    assert [*batches(few)] != [*batches(few.model_copy(update={"seed": 7}))]
    many = [item for batch in batches(RECIPE.model_copy(update={"steps": 150})) for item in batch]
    assert len(many) == 150 * RECIPE.batch
    counts = Counter(item.kind for item in many)
    without = round(RECIPE.batch * RECIPE.without_context_share)
    assert counts.pop("none") == 150 * without
    total = sum(RECIPE.kind_weights.values())
    for kind, weight in RECIPE.kind_weights.items():
        expected = 150 * (RECIPE.batch - without) * weight / total
        assert abs(counts[kind] - expected) < 5 * expected**0.5, kind
    assert set(RECIPE.kind_weights) | {"none"} == set(MAKERS)
    share = sum(item.task == "addition" for item in many) / len(many)
    assert abs(share - RECIPE.addition_share) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_items_fit_the_tokenizer_and_the_positions(kind: ItemKind) -> None:
    for item in items(kind, 200):
        length = len(question_ids(item.question, item.context)) + len(encode(item.seen)) + 1
        assert length <= RECIPE.max_positions // 2
        assert len(item.seen) == len(item.wanted) == len(item.scored) - 1
        assert (item.context is None) == (kind == "none")


@pytest.mark.parametrize("kind", KINDS)
def test_no_question_of_either_benchmark_is_held_out(kind: ItemKind) -> None:
    held_out = {
        frozenset(p.id.split("+")) for split in ("test", "validation") for p in BENCHMARKS["addition"].load(split)
    }
    chains = {p.id for split in ("test", "validation") for p in BENCHMARKS["chain"].load(split)}
    every_fact = RECIPE.model_copy(update={"covered_pairs": 100, "covered_chain_sums": 100, "covered_products": 100})
    for item in items(kind, 1_500, every_fact):
        asked = [item.question, *re.findall(r"eg:([\d+*]+):", item.context or "")]
        for question in asked:
            if re.fullmatch(r"\d{3}\+\d{3}", question):
                assert frozenset(question.split("+")) not in held_out
            else:
                assert question not in chains and chain.exchanged(question) not in chains


@pytest.mark.parametrize("kind", KINDS)
def test_uncovered_facts_are_taught_no_more_often_than_chance_has_them(kind: ItemKind) -> None:
    stream = ContextualStream(RECIPE)
    for task in stream.tasks.values():
        true = uncovered = 0
        for item in (stream.item(kind, task) for _ in range(1_500)):
            texts = [(item.wanted, item.scored)]
            if item.context is not None and not kind.startswith("peer_failure"):
                texts.append((item.context, (True,) * len(item.context)))
            for text, scored in texts:
                for key, value, position in facts(text):
                    if scored[position] and not task.is_covered(key):
                        uncovered += 1
                        true += value == task.truth(key)
        # Invented values are true once in 10 or more; wrong steps of attempts are true less often than that.
        assert true <= 0.1 * uncovered + 5 * (0.09 * uncovered) ** 0.5 + 1, (task.name, true, uncovered)


@pytest.mark.parametrize("kind", ["none", "peer_failure"])
def test_without_a_helpful_context_only_the_truth_is_taught(kind: ItemKind) -> None:
    stream = ContextualStream(RECIPE)
    for task in stream.tasks.values():
        for item in (stream.item(kind, task) for _ in range(500)):
            for key, value, position in facts(item.wanted):
                if item.scored[position]:
                    assert task.is_covered(key) and value == task.truth(key)
                else:
                    assert not task.is_covered(key)


@pytest.mark.parametrize("kind", ["solution", "peer_success", "peer_success_and_remark", "facts"])
def test_where_every_fact_is_shown_an_uncorrupted_response_repeats_the_context(kind: ItemKind) -> None:
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    untrue = 0
    made = items(kind, 400, clean)
    for item in made:
        assert item.seen == item.wanted and all(item.scored)
        shown = [(key, value) for key, value, _ in facts(item.context or "")]
        taught = [(key, value) for key, value, _ in facts(item.wanted)]
        assert set(taught) <= set(shown)
        untrue += item.wanted != problem(item).solution
    assert abs(untrue / len(made) - clean.random_context_share) < 0.1, "most contexts must be read to be right"


def test_facts_are_shuffled_among_irrelevant_ones() -> None:
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    rows = [
        ([f[0] for f in facts(item.context or "")], [f[0] for f in facts(item.wanted)])
        for item in items("facts", 400, clean)
    ]
    assert sum(len(shown) > len(needed) for shown, needed in rows) > 250
    in_order = [[key for key in shown if key in needed] == needed for shown, needed in rows]
    assert sum(in_order) < 200


def test_an_answer_is_followed_digit_by_digit() -> None:
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    for item in items("answer", 400, clean):
        assert item.context == "#" + item.wanted.rpartition("#")[2]


@pytest.mark.parametrize("kind", ["feedback", "critique"])
def test_the_named_step_is_taught_and_the_others_are_true(kind: ItemKind) -> None:
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    stream = ContextualStream(clean)
    named = 0
    for item in (stream.item(kind) for _ in range(600)):
        task = stream.tasks[item.task]
        shown = {key: value for key, value, _ in facts(item.context or "")}
        assert len(shown) <= 1
        if shown:
            named += 1
            # A shown fact that the question asks twice may lead it to facts that nothing tells.
            taught = {key: value for key, value, position in facts(item.wanted) if item.scored[position]}
            assert shown.items() <= taught.items()
            related = {key for key in taught if key in shown or task.adjusted(key, shown) is not None}
            others = [(key, value) for key, value in taught.items() if key not in related]
            assert all(value == task.truth(key) for key, value in others)
    assert named > 400


def test_feedback_on_a_shown_failure_names_its_first_wrong_step() -> None:
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    for item in items("peer_failure_and_remark", 400, clean):
        attempt, _, remark = str(item.context).removeprefix("no:").partition(" ")
        assert remark.startswith(("fix:", "note:"))
        right, wrong = item.wanted.partition("#")[0].split(";"), attempt.partition("#")[0].split(";")
        first = next(step for step, written in zip(right, wrong, strict=True) if step != written)
        assert remark.partition(":")[2] == first
        assert attempt.rpartition("#")[2] != item.wanted.rpartition("#")[2]


def test_critiques_of_true_attempts_say_what_the_environment_says() -> None:
    right = compared = 0
    for item in items("critique_request", 800):
        assert item.seen == item.wanted and all(item.scored)
        solution, _, attempt = str(item.context).rpartition("check:")
        if solution:
            continue
        grade = BENCHMARKS[item.task].grade(problem(item), attempt)
        if item.wanted == "ok":
            right += 1
            assert attempt == problem(item).solution
        else:
            assert item.wanted == grade.feedback
        compared += 1
    assert 0.2 < right / compared < 0.5


def test_corruption_changes_inputs_and_not_targets() -> None:
    stream = ContextualStream(RECIPE.model_copy(update={"corrupted_share": 1.0, "corruption_rate": 1.0}))
    for task in stream.tasks.values():
        changed = total = 0
        for item in (stream.item("none", task) for _ in range(300)):
            for (asked, seen, _), (key, wanted, position) in zip(facts(item.seen), facts(item.wanted), strict=True):
                assert asked == key
                if item.scored[position]:
                    assert wanted == task.truth(key)
                    changed += seen != wanted
                    total += 1
        assert changed / total > 0.85
    clean = RECIPE.model_copy(update={"corrupted_share": 0.0})
    assert all(item.seen == item.wanted and all(item.scored) for item in items("none", 200, clean))


def test_knowledge_prefers_what_is_shown_then_the_answer_then_the_covered_truth() -> None:
    task = ContextualStream(RECIPE.model_copy(update={"covered_pairs": 100})).tasks["addition"]
    assert Knowledge({"4+8+0=": "07"}, "0009").value(task, 0, "4+8+0=") == "07"
    assert Knowledge({"4+8+0=": "07"}, "0009").value(task, 0, "4+8+1=") == "08"
    assert Knowledge({}, "0009").value(task, 0, "4+8+0=") == "09"
    assert Knowledge().value(task, 0, "4+8+0=") == "12"
    few = ContextualStream(RECIPE).tasks["addition"]
    uncovered = next(f"{x}+{y}+0=" for x in range(10) for y in range(10) if not few.is_covered(f"{x}+{y}+0="))
    assert Knowledge().value(few, 0, uncovered) is None
