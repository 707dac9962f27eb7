"""The user's own data: strict reading, splits, refusal of overlap, graders, and the order of training."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evaluation.data import (
    DataError,
    check_overlap,
    load_user_data,
    solutions_graded_wrong,
    training_order,
    user_benchmark,
)
from evaluation.grading.sandbox import SandboxUnavailableError, find_sandbox
from evaluation.overlap import normal_form, text_of
from evaluation.problems import Message


def _write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def _sums(first: int, count: int) -> list[dict[str, Any]]:
    return [{"problem": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1)} for n in range(first, first + count)]


# --- reading -----------------------------------------------------------------------------------------------------


def test_every_key_is_read(tmp_path: Path) -> None:
    records = [
        {"problem": "What is 1 + 1?", "answer": "2", "solution": "1 + 1 = 2", "id": "one", "cluster": "sums"},
        {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 4?"}], "answer": 7},
        {"problem": "Write f.", "tests": ["assert f(1) == 1"]},
        {"problem": "What is half of five?", "answer": 2.5},
    ]
    data = load_user_data(_write(tmp_path / "a.jsonl", records), validation_share=0, test_share=0)
    first, second, third, fourth = data.train
    assert (first.id, first.answer, first.solution, first.cluster) == ("one", "2", "1 + 1 = 2", "sums")
    assert (first.benchmark, first.split) == ("data", "train")
    assert second.prompt[0] == Message(role="system", content="Be brief.") and second.answer == "7"
    assert second.id == "train-00002"
    assert third.tests == ("assert f(1) == 1",) and third.answer == ""
    assert fourth.answer == "2.5"
    assert data.places["train/one"] == f"{tmp_path / 'a.jsonl'}:1"
    assert data.validation == data.test == []


def test_byte_order_mark_crlf_and_empty_lines_are_fine(tmp_path: Path) -> None:
    lines = [json.dumps(record, ensure_ascii=False) for record in [*_sums(1, 2), {"problem": "Größe?", "answer": "ß"}]]
    file = tmp_path / "windows.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode() + b"\r\n\r\n")
    data = load_user_data(file, validation_share=0, test_share=0)
    assert [problem.answer for problem in data.train] == ["3", "5", "ß"]
    assert data.train[1].id == "train-00003", "ids count lines of the file"


GOOD = json.dumps({"problem": "p", "answer": "1"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"problem": "p", "answer": "1", "sollution": "s"}', "unknown key 'sollution'; did you mean 'solution'?"),
        ('{"problem": "p", "answer": "1", "zzz": 1}', "unknown key 'zzz'; valid: problem, prompt, solution"),
        ('{"problem": "", "answer": "1"}', "'problem' is empty"),
        ('{"problem": " \\n", "answer": "1"}', "'problem' is empty"),
        ('{"problem": null, "answer": "1"}', "'problem' is empty"),
        ('{"problem": 3, "answer": "1"}', "'problem' must be text, not a number"),
        ('{"problem": ["p"], "answer": "1"}', "'problem' must be text, not a list"),
        ('{"answer": "1"}', "either a 'problem' \\(text\\) or a 'prompt'"),
        ('{"problem": "p", "prompt": [], "answer": "1"}', "either a 'problem' \\(text\\) or a 'prompt'"),
        ('{"prompt": "p", "answer": "1"}', "'prompt' must be a list of messages"),
        ('{"prompt": [], "answer": "1"}', "'prompt' must be a list of messages"),
        ('{"prompt": [{"role": "teacher", "content": "p"}], "answer": "1"}', "prompt.0.role: "),
        ('{"prompt": [{"role": "user"}], "answer": "1"}', "prompt.0.content: "),
        ('{"prompt": ["p"], "answer": "1"}', "prompt.0: "),
        ('{"prompt": [{"role": "user", "content": " "}], "answer": "1"}', "prompt.0.content is empty"),
        ('{"prompt": [{"role": "assistant", "content": "p"}], "answer": "1"}', "last message .* 'assistant'"),
        ('{"problem": "p"}', "needs an 'answer'"),
        ('{"problem": "p", "answer": ""}', "'answer' is empty"),
        ('{"problem": "p", "answer": true}', "'answer' must be text, not true or false"),
        ('{"problem": "p", "answer": {"a": 1}}', "'answer' must be text, not an object"),
        ('{"problem": "p", "tests": "assert 1"}', "'tests' must be a list"),
        ('{"problem": "p", "tests": []}', "'tests' must be a list"),
        ('{"problem": "p", "tests": [1]}', "'tests' must be a list"),
        ('{"problem": "p", "answer": "1", "solution": 5}', "'solution' must be text, not a number"),
        ('{"problem": "p", "answer": "1", "id": 5}', "'id' must be text, not a number"),
        ('{"problem": "p", "answer": "1", "answer": "2"}', "the key 'answer' stands twice"),
        ('{"problem": "p", "answer": "1"', "not valid JSON"),
        ('[{"problem": "p", "answer": "1"}]', "a record is a JSON object .* not a list"),
        ("[", "not valid JSON .*one record a line"),
        ("3", "a record is a JSON object .* not a number"),
        ("null", "not null"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_faults_are_refused_with_file_line_and_fix(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(GOOD + "\n" + line + "\n")
    with pytest.raises(DataError, match=rf"mine\.jsonl:2: .*{message}"):
        load_user_data(file, validation_share=0, test_share=0)


def test_other_faults_of_files(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.jsonl"
    empty.write_text("\n\n")
    broken.write_bytes(GOOD.encode() + b"\n\xff\xfe\n")
    double = _write(tmp_path / "double.jsonl", [{"problem": p, "answer": "1", "id": "same"} for p in "ab"])
    for file, message in (
        (tmp_path / "missing.jsonl", "missing.jsonl: no such file"),
        (tmp_path, "not a file"),
        (empty, "empty.jsonl: the file is empty"),
        (broken, "broken.jsonl:2: not UTF-8"),
        (double, "double.jsonl:2: id 'same' is taken by .*double.jsonl:1"),
    ):
        with pytest.raises(DataError, match=message):
            load_user_data(file)


# --- splits ------------------------------------------------------------------------------------------------------


def test_a_share_is_held_out_deterministically_and_whatever_the_order(tmp_path: Path) -> None:
    records = _sums(10, 200)
    data = load_user_data(_write(tmp_path / "a.jsonl", records), validation_share=0.1, test_share=0.2)
    assert (len(data.train), len(data.validation), len(data.test)) == (140, 20, 40)
    assert {problem.split for problem in data.test} == {"test"}
    random.Random(0).shuffle(records)
    shuffled = load_user_data(_write(tmp_path / "b.jsonl", records), validation_share=0.1, test_share=0.2)
    for split in ("train", "validation", "test"):
        one, other = data.split(split), shuffled.split(split)
        assert {text_of(problem) for problem in one} == {text_of(problem) for problem in other}


def test_the_same_text_is_never_on_both_sides(tmp_path: Path) -> None:
    records = _sums(10, 60) + [{**r, "problem": r["problem"].upper().replace(" ", "  ")} for r in _sums(10, 60)]
    records += [{"problem": f"Please tell me: what is {n} + {n + 1}?", "answer": "x"} for n in range(10, 70)]
    data = load_user_data(_write(tmp_path / "a.jsonl", records))
    sides = [
        {normal_form(text_of(p)).rpartition("what is ")[2] for p in data.split(s)}
        for s in ("train", "validation", "test")
    ]
    assert all(sides) and not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])
    assert sum(map(len, sides)) == 60


def test_a_cluster_stays_on_one_side(tmp_path: Path) -> None:
    records = [{**record, "cluster": f"passage {n % 20}"} for n, record in enumerate(_sums(10, 200))]
    data = load_user_data(_write(tmp_path / "a.jsonl", records))
    sides = [{problem.cluster for problem in data.split(s)} for s in ("train", "validation", "test")]
    assert [len(side) for side in sides] == [16, 2, 2]
    assert len(set.union(*sides)) == 20


def test_small_files_still_get_every_split_and_too_small_ones_are_refused(tmp_path: Path) -> None:
    data = load_user_data(_write(tmp_path / "a.jsonl", _sums(10, 4)))
    assert (len(data.train), len(data.validation), len(data.test)) == (2, 1, 1)
    with pytest.raises(DataError, match=r"2 records .* too few to hold out"):
        load_user_data(_write(tmp_path / "b.jsonl", _sums(10, 2)))
    alike = [{**record, "cluster": "one"} for record in _sums(10, 50)]
    with pytest.raises(DataError, match=r"50 records in 1 groups .*data\.test"):
        load_user_data(_write(tmp_path / "c.jsonl", alike))


@pytest.mark.parametrize("shares", [(-0.1, 0.1), (0.5, 0.5), (0.1, 1.0), (float("nan"), 0.1)])
def test_impossible_shares_are_refused(tmp_path: Path, shares: tuple[float, float]) -> None:
    with pytest.raises(DataError, match="shares"):
        load_user_data(_write(tmp_path / "a.jsonl", _sums(10, 50)), validation_share=shares[0], test_share=shares[1])


def test_files_of_their_own_are_taken_as_they_are(tmp_path: Path) -> None:
    files = [_write(tmp_path / f"{n}.jsonl", _sums(100 * n, 5)) for n in (1, 2, 3)]
    data = load_user_data(*files)
    assert [len(data.train), len(data.validation), len(data.test)] == [5, 5, 5]
    assert data.test[0].id == "test-00001" and data.test[0].split == "test"
    only_test = load_user_data(files[0], None, files[2], validation_share=0.2)
    assert [len(only_test.train), len(only_test.validation), len(only_test.test)] == [4, 1, 5]


@pytest.mark.parametrize(
    ("copy", "kind"),
    [("what is 103+104", "same text"), ("Please tell me: what is 103 + 104?", "near duplicate")],
)
@pytest.mark.parametrize("other", ["validation", "test"])
def test_shared_problems_are_refused_with_both_lines(tmp_path: Path, copy: str, kind: str, other: str) -> None:
    train = _write(tmp_path / "train.jsonl", _sums(100, 9))
    held = _write(tmp_path / "held.jsonl", [*_sums(300, 3), {"problem": copy, "answer": "207"}])
    validation, test = (held, None) if other == "validation" else (None, held)
    with pytest.raises(
        DataError, match=rf"train and {other} share 1 problems: \S+train.jsonl:4 and \S+held.jsonl:4 \({kind}\)"
    ):
        load_user_data(train, validation, test, validation_share=0.0, test_share=0.0)


def test_validation_and_test_may_not_share_problems(tmp_path: Path) -> None:
    train, held = _write(tmp_path / "t.jsonl", _sums(100, 5)), _write(tmp_path / "h.jsonl", _sums(300, 3))
    with pytest.raises(DataError, match="validation and test share 3 problems"):
        load_user_data(train, held, held)


def test_different_additions_are_no_overlap(tmp_path: Path) -> None:
    train = _write(tmp_path / "t.jsonl", [{"problem": "12+34", "answer": "46"}])
    test = _write(tmp_path / "e.jsonl", [{"problem": "12+35", "answer": "47"}])
    data = load_user_data(train, test=test, validation_share=0)
    assert check_overlap(data.train, data.test) == []


def test_the_content_hash_follows_the_content(tmp_path: Path) -> None:
    def digest(name: str, records: list[dict[str, Any]]) -> str:
        return load_user_data(_write(tmp_path / name, records)).content_hash

    base = digest("a.jsonl", _sums(10, 30))
    assert digest("b.jsonl", _sums(10, 30)) == base, "the path does not matter"
    for change in ({"answer": "0"}, {"solution": "s"}, {"problem": "What is 99 + 1?"}, {"cluster": "c"}):
        assert digest("c.jsonl", [{**_sums(10, 1)[0], **change}, *_sums(11, 29)]) != base


# --- grading -----------------------------------------------------------------------------------------------------


def _one(tmp_path: Path, record: dict[str, Any], grader: Any = "math") -> Any:
    data = load_user_data(_write(tmp_path / "one.jsonl", [record]), validation_share=0, test_share=0)
    benchmark = user_benchmark(data, grader)
    return lambda text: benchmark.grade(data.train[0], text).verdict


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("0902", "4+8+0=12;2+7+1=10;8+0+1=09#0902", "4+8+0=12;2+7+1=10;8+0+1=09#0903"),
        ("122", "59 + 63 = 122", "59 + 63 = 121"),
        ("122", "First 59.\nThen 63.\nThe answer is 122.", "First 59.\nThen 63: 122."),
        ("1/2", "\\boxed{0.5}", "\\boxed{0.25}"),
        ("Paris", "paris", "Rome"),
        ("x^2-1", "$(x-1)(x+1)$", "$(x-1)^2$"),
    ],
)
def test_the_math_grader_is_the_default(tmp_path: Path, answer: str, right: str, wrong: str) -> None:
    verdict = _one(tmp_path, {"problem": "p", "answer": answer})
    assert (verdict(right), verdict(wrong)) == ("pass", "fail")


def test_the_grader_is_a_choice_and_nothing_else_is_tried(tmp_path: Path) -> None:
    record = {"problem": "p", "answer": "0902"}
    assert _one(tmp_path, record, "number")("#902") == "pass"
    assert _one(tmp_path, record, "text")("#902") == "fail"
    assert _one(tmp_path, record, "text")("#0902") == "pass"
    assert _one(tmp_path, {"problem": "p", "answer": "Paris"}, "text")("paris") == "fail"


def test_problems_with_tests_are_graded_by_running_them(tmp_path: Path) -> None:
    try:
        find_sandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    verdict = _one(tmp_path, {"problem": "Write f.", "tests": ["assert f(2) == 4"]})
    assert verdict("```python\ndef f(x): return 2 * x\n```") == "pass"
    assert verdict("```python\ndef f(x): return x\n```") == "fail"


def test_the_benchmark_is_the_data(tmp_path: Path) -> None:
    data = load_user_data(_write(tmp_path / "a.jsonl", _sums(10, 30)))
    benchmark = user_benchmark(data)
    assert benchmark.name == "data" and benchmark.splits == ("train", "validation", "test")
    assert benchmark.load("test") == data.test and benchmark.load("train", limit=2) == data.train[:2]
    only = load_user_data(tmp_path / "a.jsonl", validation_share=0, test_share=0)
    assert user_benchmark(only).splits == ("train",)
    assert len({benchmark.version, user_benchmark(data, "text").version, user_benchmark(only).version}) == 3


def test_solutions_that_their_own_grader_refuses_are_found(tmp_path: Path) -> None:
    records = [
        {"problem": "1 + 2", "answer": "3", "solution": "1 + 2 = 3\n#### 3"},
        {"problem": "2 + 2", "answer": "4", "solution": "Two and two.\nFour."},
        {"problem": "3 + 2", "answer": "5"},
    ]
    data = load_user_data(_write(tmp_path / "a.jsonl", records), validation_share=0, test_share=0)
    assert [problem.id for problem, _ in solutions_graded_wrong(user_benchmark(data), data.train)] == ["train-00002"]


# --- order -------------------------------------------------------------------------------------------------------


def test_each_epoch_is_a_permutation_of_its_own() -> None:
    order = training_order(50, seed=3, start=0, count=150)
    epochs = [order[i : i + 50] for i in (0, 50, 100)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert training_order(50, seed=4, start=0, count=50) != epochs[0]


def test_any_resume_point_continues_exactly() -> None:
    whole = training_order(7, seed=5, start=0, count=40)
    for start in range(41):
        assert whole[:start] + training_order(7, seed=5, start=start, count=40 - start) == whole


def test_the_order_never_changes() -> None:
    """Pinned: runs are identified by their seed, so the order must not drift with a version of anything."""
    assert training_order(8, seed=0, start=0, count=16) == [7, 4, 2, 6, 5, 0, 1, 3, 0, 1, 5, 4, 6, 2, 3, 7]


def test_first_places_are_uniform_over_seeds() -> None:
    counts = Counter(training_order(5, seed=seed, start=0, count=1)[0] for seed in range(2000))
    assert all(abs(count - 400) < 5 * 18 for count in counts.values()), "five standard deviations of a binomial"


@pytest.mark.parametrize("arguments", [(0, 0, 0, 1), (5, -1, 0, 1), (5, 0, -1, 1), (5, 0, 0, -1)])
def test_impossible_orders_are_refused(arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no order"):
        training_order(*arguments)


def test_an_empty_stretch_is_empty() -> None:
    assert training_order(5, seed=0, start=3, count=0) == []
