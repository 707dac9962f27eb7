"""Evaluating with a scripted sampler: requests, grades, records, and what does not depend on what."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import Answer, evaluate, request_seed
from evaluation.problems import Grade, Message, Problem, Split
from evaluation.recording import close_evaluation, record_answers
from evaluation.results.spool import Spool, read_samples
from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from evaluation.samplers.scripted import ScriptedSampler

END = 99
PARAMS = SamplingParams(max_new_tokens=8)
PROBLEMS = [
    Problem(
        id=f"p{n}",
        benchmark="digits",
        split="test",
        prompt=(Message(role="user", content=f"digit {n}"),),
        answer=str(n),
        solution=f"privileged {n}",
        cluster="even" if n % 2 == 0 else None,
    )
    for n in range(6)
]


def _load(split: Split, *, limit: int | None = None, root: Path | None = None) -> list[Problem]:
    return PROBLEMS[:limit] if split == "test" else []


def _grade(problem: Problem, text: str) -> Grade:
    if problem.id == "p5":
        raise RuntimeError("the grader is broken")
    right = text == problem.answer
    verdict = "pass" if right else "fail"
    return Grade(verdict=verdict, score=float(right), grader="digit", version="2", extracted=text, well_formed=True)


DIGITS = Benchmark("digits", "4", "Digits", "none", "here", ("train", "test"), 8, _load, _grade)


class _Recording:
    """Answers digit n with n where the seed is even, else with n + 1; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[SampleRequest] = []
        self.scripted = ScriptedSampler(
            lambda request: [request.prompt_ids[-1] + request.seed % 2, END], frozenset({END})
        )

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        self.asked += requests
        return self.scripted.sample(requests, params)


def _render(problem: Problem) -> tuple[int, ...]:
    assert "privileged" not in problem.prompt[0].content
    return (7, 7, int(problem.prompt[0].content.removeprefix("digit ")))


def _decode(ids: Sequence[int]) -> str:
    return "".join(str(i) for i in ids if i != END)


def _evaluate(
    problems: Sequence[Problem] = PROBLEMS, seed: int = 0, samples: int = 3
) -> tuple[list[Answer], list[SampleRequest]]:
    sampler = _Recording()
    answers = evaluate(sampler, _render, _decode, DIGITS, problems, samples=samples, sampling=PARAMS, seed=seed)
    return answers, sampler.asked


def test_answers_hold_texts_and_grades_problem_by_problem() -> None:
    answers, asked = _evaluate()
    assert [(a.problem_id, a.sample_index) for a in answers] == [(f"p{n}", s) for n in range(6) for s in range(3)]
    for answer, request in zip(answers, asked, strict=True):
        number = int(answer.problem_id[1:])
        assert request.prompt_ids == (7, 7, number) and answer.prompt_tokens == 3
        assert answer.text == str(number + request.seed % 2)
        assert answer.completion.token_ids == (number + request.seed % 2, END)
        right = "pass" if request.seed % 2 == 0 else "fail"
        assert answer.grade.verdict == ("not_scored" if number == 5 else right)
    assert answers[-1].grade.error == "RuntimeError: the grader is broken"
    assert [r.seed for r in asked] == [request_seed(0, "digits", a.problem_id, a.sample_index) for a in answers]


def test_request_seeds_depend_on_exactly_four_things() -> None:
    base = request_seed(1, "b", "p", 0)
    others = [
        request_seed(2, "b", "p", 0),
        request_seed(1, "c", "p", 0),
        request_seed(1, "b", "q", 0),
        request_seed(1, "b", "p", 1),
    ]
    assert len({base, *others}) == 5
    assert request_seed(1, "b1", "p", 0) != request_seed(1, "b", "1p", 0)
    assert 0 <= base < 1 << 64


def test_request_seeds_are_pinned() -> None:
    """BLAKE2b-64 of length-prefixed parts; recorded answers are drawn again by it, so it must not drift."""
    text = "1:18:addition7:824+0781:2"
    assert request_seed(1, "addition", "824+078", 2) == int(
        hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), 16
    )


def test_an_answer_depends_on_its_own_problem_only() -> None:
    whole = {(a.problem_id, a.sample_index): a for a in _evaluate()[0]}
    for subset in (PROBLEMS[2:4], PROBLEMS[::-1]):
        for answer in _evaluate(subset)[0]:
            assert answer == whole[answer.problem_id, answer.sample_index]
    for answer in _evaluate(samples=1)[0]:
        assert answer == whole[answer.problem_id, 0]
    assert [a.text for a in _evaluate(seed=1)[0]] != [a.text for a in _evaluate(seed=0)[0]]


def test_the_prompt_is_that_of_the_plain_problem() -> None:
    stripped = [problem.model_copy(update={"solution": None}) for problem in PROBLEMS]
    sampler = _Recording()
    evaluate(sampler, lambda p: (7, 7, int(p.id[1:])), _decode, DIGITS, stripped, samples=3, sampling=PARAMS, seed=0)
    assert sampler.asked == _evaluate()[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problems": []}, "no problems"),
        ({"samples": 0}, "samples must be positive"),
        ({"problems": [PROBLEMS[0], PROBLEMS[0]]}, "two problems have the id 'p0'"),
        ({"sampling": SamplingParams(max_new_tokens=8, temperature=0)}, "3 samples at temperature 0"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"problems": PROBLEMS, "samples": 3, "sampling": PARAMS, "seed": 0, **changes}
    with pytest.raises(ValueError, match=message):
        evaluate(_Recording(), _render, _decode, DIGITS, **arguments)


# --- records -----------------------------------------------------------------------------------------------------


def _record(run_dir: Path, answers: list[Answer], update: int = 20) -> list[dict[str, Any]]:
    with Spool(run_dir, role="evaluator", attempt=1) as spool:
        record_answers(spool, run_dir, "r1", update, DIGITS, "test", PROBLEMS, answers, part=0)
        close_evaluation(spool, "r1", update, DIGITS, "test", len(PROBLEMS), 3, {"rollout_tokens": 5.0}, seconds=1.25)
        lines = spool.path.read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_everything_is_recorded_and_the_closing_record_is_last(tmp_path: Path) -> None:
    answers, _ = _evaluate()
    lines = _record(tmp_path, answers)
    kinds = [line["kind"] for line in lines]
    assert [kinds.count(kind) for kind in ("problem", "answer", "grade", "evaluation")] == [6, 18, 18, 1]
    assert kinds[-1] == "evaluation"
    closing = lines[-1]["data"]
    assert (closing["problems"], closing["samples_per_problem"], closing["seconds"]) == (6, 3, 1.25)
    assert closing["cost"] == {"rollout_tokens": 5.0}
    problem = next(line["data"] for line in lines if line["kind"] == "problem")
    assert problem == {
        "benchmark": "digits",
        "benchmark_version": "4",
        "split": "test",
        "problem_id": "p0",
        "cluster": "even",
        "answer": "0",
        "prompt": "digit 0",
    }


def test_records_lead_to_the_texts_and_grades_of_their_answers(tmp_path: Path) -> None:
    answers, _ = _evaluate()
    lines = _record(tmp_path, answers)
    grades = {line["data"]["answer_key"]: line["data"] for line in lines if line["kind"] == "grade"}
    recorded = [line for line in lines if line["kind"] == "answer"]
    table = read_samples(tmp_path, recorded[0]["data"]["sample_file"]).to_pylist()
    for line, answer in zip(recorded, answers, strict=True):
        data, grade = line["data"], grades[line["key"]]
        row = table[data["sample_row"]]
        assert (row["problem_id"], row["sample_index"]) == (answer.problem_id, answer.sample_index)
        assert (row["completion"], row["prompt"]) == (answer.text, f"digit {answer.problem_id[1:]}")
        assert row["token_ids"] == list(answer.completion.token_ids)
        assert row["logprobs"] == list(answer.completion.logprobs)
        assert (data["completion_tokens"], data["prompt_tokens"], data["finish_reason"]) == (2, 3, "stop")
        for key in ("verdict", "score", "grader", "version", "extracted", "well_formed", "lenient", "error"):
            assert grade[key] == getattr(answer.grade, key)


def test_recording_again_gives_the_same_file_and_keys(tmp_path: Path) -> None:
    answers, _ = _evaluate()
    first = _record(tmp_path, answers)
    (file,) = (tmp_path / "samples").iterdir()
    content = file.read_bytes()
    second = _record(tmp_path, answers)
    assert [*(tmp_path / "samples").iterdir()] == [file] and file.read_bytes() == content
    assert [line["key"] for line in first] == [line["key"] for line in second]
    _record(tmp_path, answers, update=40)
    assert len([*(tmp_path / "samples").iterdir()]) == 2, "another checkpoint, another file"


def test_incomplete_answers_are_not_recorded_as_an_evaluation(tmp_path: Path) -> None:
    answers, _ = _evaluate()
    doubled = [*answers[:-1], dataclasses.replace(answers[0])]
    for wrong in (answers[:-1], [], doubled):
        with pytest.raises(ValueError, match="same number of answers"):
            _record(tmp_path, wrong)
    assert not (tmp_path / "samples").exists()


def test_conversations_are_shown_with_their_roles(tmp_path: Path) -> None:
    system = Message(role="system", content="Be brief.")
    problem = PROBLEMS[0].model_copy(update={"prompt": (system, *PROBLEMS[0].prompt)})
    sampler = _Recording()
    answers = evaluate(sampler, lambda p: (7, 7, 0), _decode, DIGITS, [problem], samples=1, sampling=PARAMS, seed=0)
    with Spool(tmp_path, role="evaluator", attempt=1) as spool:
        record_answers(spool, tmp_path, "r1", 0, DIGITS, "test", [problem], answers, part=7)
    assert read_samples(tmp_path, "samples/answers-000000-digits-test-0007.parquet").to_pylist()[0]["prompt"] == (
        "system: Be brief.\n\nuser: digit 0"
    )


def test_what_is_graded_ends_before_a_stop_text() -> None:
    sampler = ScriptedSampler(
        lambda request: [request.prompt_ids[-1], 7, 8, 1], decode=lambda ids: "".join(map(str, ids))
    )
    answers = evaluate(
        sampler,
        lambda problem: (int(problem.id[1:]),),
        lambda ids: "".join(map(str, ids)),
        DIGITS,
        PROBLEMS[:3],
        samples=1,
        sampling=SamplingParams(max_new_tokens=8, stop=("78", "zzz")),
        seed=0,
    )
    assert [answer.text for answer in answers] == ["0", "1", "2"]
    assert [answer.completion.token_ids for answer in answers] == [(n, 7, 8) for n in range(3)]
    assert {answer.grade.verdict for answer in answers} == {"pass"}
    assert {answer.completion.finish_reason for answer in answers} == {"stop"}
