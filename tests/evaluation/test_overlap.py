"""What counts as the same problem, what as nearly the same, and what must not."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.overlap import check_overlap, group_alike, normal_form
from evaluation.problems import Message, Problem


def _problem(text: str, identity: str = "p", cluster: str | None = None) -> Problem:
    message = Message(role="user", content=text)
    return Problem(id=identity, benchmark="data", split="train", prompt=(message,), answer="1", cluster=cluster)


def _kind(one: str, other: str) -> str | None:
    found = check_overlap([_problem(one)], [_problem(other)])
    reverse = check_overlap([_problem(other)], [_problem(one)])
    assert [o.kind for o in found] == [o.kind for o in reverse], "overlap is symmetric"
    return found[0].kind if found else None


LONG = (
    "A train leaves the station at noon and travels north at a steady speed for three hours before it stops "
    "at a small town where half of the passengers get off to see the old market square"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12+34", "12 + 34"),
        ("What is 12 + 34?", "what is 12+34"),
        ("What is “12 + 34”?", "What is '12 + 34' ?"),
        ("Name the two-digit primes.", "name the two digit primes"),
        ("ﬁnd x", "FIND X"),
        ("5 \u2212 3", "5 - 3"),
        ("a\r\n\tb", "a b"),
        ("???", "???"),
    ],
)
def test_the_same_text(one: str, other: str) -> None:
    assert _kind(one, other) == "same text"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12+34", "12+35"),
        ("12+34", "12-34"),
        ("12+34", "1+234"),
        ("1.5 + 2", "15 + 2"),
        ("824+078", "078+824"),
        ("What is 12 + 34?", "What is 12 + 35?"),
        ("What is 12 + 34?", "What is 12 * 34?"),
        ("What is 12 + 34?", "What is 12 + 34 + 5?"),
        ("Reverse the word cat", "Reverse the word car"),
        ("Name the capital of France", "Name the capital of France and Spain"),
        ("Is 3 greater than 4?", "Is 3 less than 4?"),
        (LONG + " . How many of 40 left?", LONG + " . How many of 60 left?"),
        ("???", "!!!"),
    ],
)
def test_different_problems(one: str, other: str) -> None:
    assert _kind(one, other) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 12 + 34?", "Please tell me: what is 12 + 34?"),
        ("Compute 12 + 34 now please", "Compute 12 + 34 now, please do!"),
        (LONG, "Here is a question. " + LONG + " Answer it."),
        (LONG, LONG.replace("small", "tiny")),
    ],
)
def test_near_duplicates(one: str, other: str) -> None:
    assert _kind(one, other) == "near duplicate"


def test_boilerplate_does_not_make_problems_alike() -> None:
    instruction = "Translate the following word from English into French and reply with one word and nothing else:"
    problems = [
        _problem(f"{instruction} {word}", word) for word in ("cat", "dog", "house", "tree", "road", "sky", "sea")
    ]
    assert check_overlap(problems[:4], problems[4:]) == []
    assert len(set(group_alike(problems))) == len(problems)
    copied = _problem(f"{instruction} SEA.")
    assert [o.test_id for o in check_overlap([copied], problems[4:])] == ["sea"]


def test_overlaps_name_both_problems_and_the_nearest_is_chosen() -> None:
    train = [_problem("1+1", "a"), _problem("what is 7 + 8?", "b"), _problem("9+9", "c")]
    test = [_problem("Please: what is 7 + 8?", "x"), _problem("What is 7+8", "y"), _problem("1 + 1", "z")]
    assert [(o.train_id, o.test_id, o.shared) for o in check_overlap(train, test)] == [("a", "z", 1.0), ("b", "y", 1.0)]


def test_system_messages_are_not_compared() -> None:
    system = Message(role="system", content="Be brief.")
    user = Message(role="user", content="Name a prime number.")
    one = Problem(id="a", benchmark="b", split="train", prompt=(user,), answer="2")
    other = Problem(id="b", benchmark="b", split="test", prompt=(system, user), answer="2")
    assert len(check_overlap([one], [other])) == 1


def test_groups_hold_what_is_alike_or_shares_a_cluster() -> None:
    problems = [
        _problem("1+1"),
        _problem("first question about a passage", cluster="passage"),
        _problem("1 + 1"),
        _problem("2+2"),
        _problem("second question", cluster="passage"),
        _problem("SECOND question!"),
    ]
    groups = group_alike(problems)
    assert groups[0] == groups[2]
    assert groups[1] == groups[4] == groups[5]
    assert len(set(groups)) == 3


def test_normal_form_by_hand() -> None:
    assert normal_form("  What's 1,000.5 × (x-y)²?\n") == "what s 1,000.5 × x y 2"
    assert normal_form("x - y = -3.") == "x - y = -3".replace("-3", "- 3")


def test_the_addition_benchmark_does_not_overlap_with_itself() -> None:
    addition = BENCHMARKS["addition"]
    assert check_overlap(addition.load("train", limit=3000), addition.load("test")) == []
    smol = BENCHMARKS["smol_addition"]
    assert check_overlap(smol.load("train"), smol.load("test")) == []


def test_large_sets_are_compared_by_index_and_not_pair_by_pair() -> None:
    source = random.Random(0)
    words = [f"w{n}" for n in range(400)]
    texts = [" ".join(source.choices(words, k=30)) for _ in range(6000)]
    train, test = [_problem(t, str(n)) for n, t in enumerate(texts[:5000])], [_problem(t) for t in texts[5000:]]
    began = time.process_time()
    assert check_overlap(train, [*test, _problem("so: " + texts[17])])[0].train_id == "17"
    assert time.process_time() - began < 30, "5 million pairs would take minutes"


DATA = os.environ.get("STILLROOM_BENCHMARKS")


@pytest.mark.skipif(DATA is None, reason="set STILLROOM_BENCHMARKS to the folder of benchmark files")
def test_gsm8k_training_problems_may_be_trained_on() -> None:
    gsm8k, root = BENCHMARKS["gsm8k"], Path(str(DATA))
    train, test = gsm8k.load("train", root=root), gsm8k.load("test", root=root)
    assert check_overlap(train, test) == []
    copied = _problem(test[5].prompt[0].content.partition("\n\n")[0])
    assert [o.test_id for o in check_overlap([copied], test)] == [test[5].id], "without the instruction, still found"
