"""Reading benchmark files: what is accepted, and what is refused with its place and the fix."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.base import MissingDataError
from evaluation.benchmarks.math_sets import INSTRUCTION
from evaluation.benchmarks.reading import is_held_out, load_file, records
from evaluation.benchmarks.sciknoweval import VALIDATION_ONE_IN
from tests.evaluation.benchmarks.data import folder, needs_files


def lines(file: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_hmmt_comes_from_the_hubs_parquet_file(tmp_path: Path) -> None:
    table = pa.table({"problem_idx": [1, 2], "problem": ["What is x?", "And y?"], "answer": ["\\frac{1}{2}", "3, 4"]})
    pq.write_table(table, tmp_path / "hmmt_feb_2025.parquet")
    problems = BENCHMARKS["hmmt25"].load("test", root=tmp_path)
    assert [(p.id, p.answer) for p in problems] == [("1", "\\frac{1}{2}"), ("2", "3, 4")]
    assert problems[0].prompt[0].content == f"What is x?\n\n{INSTRUCTION}"
    grade = BENCHMARKS["hmmt25"].grade
    assert grade(problems[0], "so \\boxed{0.5}").verdict == "pass"
    assert grade(problems[1], "so \\boxed{4, 3}").verdict == "pass"
    assert grade(problems[1], "so \\boxed{4}").verdict == "fail"


def test_minerva_reads_its_answer_from_the_solution_where_there_is_none(tmp_path: Path) -> None:
    lines(
        tmp_path / "minerva_test.jsonl",
        [{"question": "Speed?", "answer": "3e8"}, {"problem": "Mass?", "solution": "It is $\\boxed{2.5}$."}],
    )
    problems = BENCHMARKS["minerva"].load("test", root=tmp_path)
    assert [p.answer for p in problems] == ["3e8", "2.5"]
    assert [p.solution for p in problems] == [None, "It is $\\boxed{2.5}$."]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"answer": "1"}, r"aime24_test.jsonl:1: no field problem or question \(there are answer\)"),
        ({"problem": " ", "answer": "1"}, r"aime24_test.jsonl:1: problem or question is not a text"),
        ({"problem": "x"}, r"aime24_test.jsonl:1: no field answer"),
        ({"problem": "x", "answer": ["1"]}, r"aime24_test.jsonl:1: the answer is neither text nor a number"),
        ({"problem": "x", "answer": True}, r"neither text nor a number"),
        ({"problem": "x", "answer": " "}, r"aime24_test.jsonl:1: the answer is empty"),
        ({"problem": "x", "solution": "two"}, r"no answer, and no \\boxed"),
    ],
)
def test_a_bad_record_is_named_with_its_line(entry: dict[str, object], message: str, tmp_path: Path) -> None:
    lines(tmp_path / "aime24_test.jsonl", [entry])
    with pytest.raises(ValueError, match=message):
        BENCHMARKS["aime24"].load("test", root=tmp_path)


def test_leading_zeros_and_floats_are_the_numbers_they_are(tmp_path: Path) -> None:
    entries = [{"id": n, "problem": "x", "answer": answer} for n, answer in enumerate(["073", 27.0, "0", "000", 0.5])]
    lines(tmp_path / "amc23_test.jsonl", entries)
    problems = BENCHMARKS["amc23"].load("test", root=tmp_path)
    assert [p.answer for p in problems] == ["73", "27", "0", "0", "0.5"]
    assert BENCHMARKS["amc23"].grade(problems[0], "\\boxed{073}").verdict == "pass"


def test_two_records_of_one_id_are_refused(tmp_path: Path) -> None:
    lines(tmp_path / "aime25_test.jsonl", [{"id": 7, "problem": "x", "answer": "1"}] * 2)
    with pytest.raises(ValueError, match=r"aime25_test.jsonl:2: id '7' is taken by aime25_test.jsonl:1"):
        BENCHMARKS["aime25"].load("test", root=tmp_path)


@pytest.mark.parametrize("name", ["math500", "aime24", "aime25", "amc23", "hmmt25", "minerva", "bfcl"])
def test_sets_to_measure_with_are_not_trained_on(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name} has a test split only"):
        BENCHMARKS[name].load("train", root=tmp_path)


@pytest.mark.parametrize("name", [name for name, benchmark in BENCHMARKS.items() if benchmark.files])
def test_absent_files_are_named_with_the_way_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="STILLROOM_BENCHMARKS") as error:
        BENCHMARKS[name].load("test", root=tmp_path)
    assert str(tmp_path) in str(error.value) and any(file in str(error.value) for file in BENCHMARKS[name].files)
    with pytest.raises(MissingDataError, match="no benchmark folder is set"):
        BENCHMARKS[name].load("test")


def test_the_three_shapes_of_a_file_and_their_faults(tmp_path: Path) -> None:
    entries = [{"a": 1}, {"a": 2}]
    (tmp_path / "array.json").write_text(json.dumps(entries))
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress('\ufeff{"a": 1}\r\n\n{"a": 2}'.encode()))
    assert [entry for _, entry in records(tmp_path / "array.json")] == entries
    assert [*records(tmp_path / "lines.jsonl.gz")] == [("lines.jsonl.gz:1", {"a": 1}), ("lines.jsonl.gz:3", {"a": 2})]
    for name, content, message in [
        ("broken.jsonl", b'{"a": 1}\n{"a": ', "broken.jsonl:2: not valid JSON"),
        ("list.jsonl", b'{"a": 1}\n3', "list.jsonl:2: a record is a JSON object, not int"),
        ("array.jsonl", b'[{"a": 1}, 4]', r"array.jsonl\[1\]: a record is a JSON object, not int"),
        ("open.json", b'[{"a": 1}', "open.json: not a JSON array"),
        ("latin.jsonl", '{"a": "é"}'.encode("latin-1"), "latin.jsonl: not UTF-8"),
        ("no.jsonl.gz", b"plain", "no.jsonl.gz: cannot be read"),
        ("no.parquet", b"plain", "no.parquet: not a Parquet file"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list(records(tmp_path / name))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no problems of this split"):
        load_file(tmp_path / "empty.jsonl", None, lambda entry, place, number: None)


@needs_files
@pytest.mark.parametrize("subject", ["biology", "chemistry", "material", "physics"])
def test_sciknoweval_splits_share_no_question(subject: str) -> None:
    benchmark = BENCHMARKS[f"sciknoweval_{subject}"]
    splits = {split: benchmark.load(split, root=folder()) for split in benchmark.splits}
    questions = {split: {p.prompt[-1].content for p in problems} for split, problems in splits.items()}
    assert sum(map(len, questions.values())) == len(set().union(*questions.values()))
    assert all(is_held_out(question, VALIDATION_ONE_IN) for question in questions["validation"])
    assert not any(is_held_out(question, VALIDATION_ONE_IN) for question in questions["train"])
    assert 0.05 < len(splits["validation"]) / (len(splits["train"]) + len(splits["validation"])) < 0.15
    assert [message.role for message in splits["test"][0].prompt] == ["system", "user"]
    assert {p.solution for p in splits["train"]} == {None}


def test_sciknoweval_leaves_out_the_question_that_is_in_the_test_file(tmp_path: Path) -> None:
    entry = {"prompt": "Which?\nA: 1\nB: 2\nC: 3\nD: 4", "answer": "B", "system": None}
    train = [{**entry, "idx": 377}, *({**entry, "prompt": f"Which {n}?", "idx": n} for n in range(60))]
    lines(tmp_path / "sciknoweval_material_train.jsonl", train)
    lines(tmp_path / "sciknoweval_physics_train.jsonl", train)
    ids = {p.id for s in ("train", "validation") for p in BENCHMARKS["sciknoweval_material"].load(s, root=tmp_path)}
    assert ids == {f"train-{n}" for n in range(60)}
    ids = {p.id for s in ("train", "validation") for p in BENCHMARKS["sciknoweval_physics"].load(s, root=tmp_path)}
    assert "train-377" in ids
    lines(tmp_path / "sciknoweval_material_test.jsonl", [{**entry, "idx": 1, "answer": "E"}])
    with pytest.raises(ValueError, match=r"material_test.jsonl:1: the answer 'E' is none of A, B, C, D"):
        BENCHMARKS["sciknoweval_material"].load("test", root=tmp_path)


def test_bfcl_reads_the_packages_files(tmp_path: Path) -> None:
    from evaluation.benchmarks.bfcl import CATEGORIES, UNANSWERED

    answers = tmp_path / "bfcl" / "possible_answer"
    answers.mkdir(parents=True)
    question = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Area of 3 by 4?"}]]
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        entry = {"id": f"{category}_0", "question": question, "function": [{"name": "geo.area", "parameters": {}}]}
        lines(tmp_path / "bfcl" / name, [entry])
        if category not in UNANSWERED:
            gold = [{"geo.area": {"a": [3], "b": [4, 4.0], "unit": ["", "m"]}}]
            lines(answers / name, [{"id": f"{category}_0", "ground_truth": gold}])
    problems = BENCHMARKS["bfcl"].load("test", root=tmp_path)
    assert [p.id for p in problems] == [f"{category}_0" for category in CATEGORIES]
    assert [m.role for m in problems[0].prompt] == ["system", "user"]
    assert "geo.area" in problems[0].prompt[0].content and "Be brief." in problems[0].prompt[0].content
    grade = BENCHMARKS["bfcl"].grade
    simple, irrelevant = problems[0], problems[CATEGORIES.index("irrelevance")]
    for text, verdict in [
        ("[geo.area(a=3, b=4)]", "pass"),
        ("geo.area(b=4.0, a=3, unit='M')", "pass"),
        ("```python\n[geo.area(a=3, b=4)]\n```", "pass"),
        ("[geo.area(a=3, b=5)]", "fail"),
        ("[geo.area(a=3)]", "fail"),
        ("[geo.area(a=3, b=4, c=1)]", "fail"),
        ("[geo.area(a=3, b=4), geo.area(a=3, b=4)]", "fail"),
        ("[geo.area(a=True, b=4)]", "fail"),
        ("[geo.area(3, 4)]", "fail"),
        ("[]", "fail"),
        ("The area is 12.", "fail"),
    ]:
        assert grade(simple, text).verdict == verdict, text
    under = grade(simple, "[geo_area(a=3, b=4)]")
    assert (under.verdict, under.lenient) == ("fail", "pass")
    assert [grade(irrelevant, t).verdict for t in ("[]", "None fits.", "[geo.area(a=3, b=4)]")] == [
        "pass",
        "pass",
        "fail",
    ]
