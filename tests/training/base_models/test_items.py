"""Mid-training items: nothing held out, uncovered facts never leak, corruption changes inputs and not targets."""

from __future__ import annotations

import re

from evaluation.benchmarks.addition import ADDITION, solution_text
from training.base_models.items import Item, ItemStream, respond, true_result, true_results
from training.base_models.recipe import Recipe

STEP = re.compile(r"(\d)\+(\d)\+(\d)=(\d\d)")


def digit_pairs(item: Item) -> list[tuple[int, int]]:
    first, second = item.question.split("+")
    return [(int(x), int(y)) for x, y in zip(reversed(first), reversed(second), strict=True)]


def is_coherent(response: str) -> bool:
    """Each carry is the first digit of the result before, and the sum is written from the results."""
    steps, _, total = response.partition("#")
    carry, written = "0", ""
    for step in steps.split(";"):
        match = STEP.fullmatch(step)
        if match is None or match[3] != carry:
            return False
        carry, written = match[4][0], match[4][1] + written
    return total == carry + written


def test_an_uncorrupted_response_is_the_benchmark_solution() -> None:
    digits = [(4, 8), (2, 7), (8, 0)]
    response = respond(digits, true_result)
    assert response.seen == response.wanted == solution_text((824, 78))
    assert true_results(digits) == ["12", "10", "09"]


def test_a_corrupted_input_goes_on_coherently_and_keeps_its_targets() -> None:
    replacements = iter([None, "07", None])
    response = respond([(4, 8), (2, 7), (8, 0)], true_result, lambda: next(replacements))
    # Step two is shown as 07 instead of 10: no carry follows, so step three is 8+0+0=08 and the sum ends 0, 8, 7, 2.
    assert response.seen == "4+8+0=12;2+7+1=07;8+0+0=08#0872"
    assert response.wanted == "4+8+0=12;2+7+1=10;8+0+0=08#0872"


def test_items_without_context_stay_on_covered_pairs_and_are_true() -> None:
    stream = ItemStream(Recipe())
    assert len(set(stream.covered)) == 50
    for item in (stream.without_context() for _ in range(500)):
        assert item.context is None
        assert set(digit_pairs(item)) <= set(stream.covered)
        for x, y, carry, result in STEP.findall(item.wanted):
            assert int(result) == int(x) + int(y) + int(carry)
        assert is_coherent(item.seen)


def test_items_with_context_repeat_the_context_and_leak_no_uncovered_fact() -> None:
    stream = ItemStream(Recipe())
    true_contexts = uncovered = 0
    items = [stream.with_context() for _ in range(2_000)]
    for item in items:
        assert item.context is not None and is_coherent(item.context) and is_coherent(item.seen)
        shown = [step[3] for step in STEP.findall(item.context)]
        assert [step[3] for step in STEP.findall(item.wanted)] == shown
        pairs = digit_pairs(item)
        if shown == true_results(pairs):
            true_contexts += 1
            uncovered += not set(pairs) <= set(stream.covered)
    # Half are true by design; a random context is true by chance once in 20^3.
    assert 900 < true_contexts < 1_100
    assert uncovered <= 2


def test_corruption_has_the_stated_rates() -> None:
    stream = ItemStream(Recipe(corrupted_share=1.0, corruption_rate=0.35))
    changed = total = 0
    for item in (stream.without_context() for _ in range(2_000)):
        for seen, wanted in zip(STEP.findall(item.seen), STEP.findall(item.wanted), strict=True):
            assert seen[:3] == wanted[:3]
            changed += seen[3] != wanted[3]
            total += 1
    # One replacement in twenty hits the right result by chance: 0.35 · 0.95 = 0.3325; four standard errors are 0.025.
    assert abs(changed / total - 0.3325) < 0.025
    clean = ItemStream(Recipe(corrupted_share=0.0))
    assert all(item.seen == item.wanted for item in (clean.with_context() for _ in range(200)))


def test_held_out_operands_never_appear() -> None:
    held_out = {frozenset(p.id.split("+")) for split in ("test", "validation") for p in ADDITION.load(split)}
    stream = ItemStream(Recipe(covered_pairs=100))
    questions = [stream.without_context().question for _ in range(10_000)]
    assert not held_out & {frozenset(question.split("+")) for question in questions}


def test_a_seed_decides_the_stream() -> None:
    def first(seed: int) -> list[Item]:
        stream = ItemStream(Recipe(seed=seed))
        return [stream.without_context() for _ in range(5)] + [stream.with_context() for _ in range(5)]

    assert first(3) == first(3)
    assert first(3) != first(4)
