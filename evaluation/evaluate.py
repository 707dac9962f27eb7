"""Asking a model a benchmark's problems, grading its answers, and recording both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.problems import Grade, Problem, Split
from evaluation.results.records import AnswerRecord, EvaluationRecord, GradeRecord, ProblemRecord
from evaluation.results.spool import Spool, write_samples
from evaluation.samplers.base import Completion, Sampler, SampleRequest, SamplingParams, seed_of


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one problem, with its grade. ``sample_index`` counts a problem's samples from 0."""

    problem_id: str
    sample_index: int
    prompt_tokens: int
    completion: Completion
    text: str
    grade: Grade


def _refuse_double_ids(name: str, problems: Sequence[Problem]) -> None:
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ValueError(f"benchmark {name}: two problems have the id {problem.id!r}")
        seen.add(problem.id)


def request_seed(seed: int, benchmark: str, problem_id: str, sample_index: int) -> int:
    """Seed of one answer, 0 to 2^64 - 1: a hash of exactly these four, so that each answer can be drawn again alone.

    It depends on neither the order nor the number of problems, nor on the checkpoint: checkpoints of one run are
    compared under common random numbers.
    """
    parts = (str(seed), benchmark, problem_id, str(sample_index))
    text = "".join(f"{len(part)}:{part}" for part in parts)  # lengths, so that no two tuples share a text
    return seed_of(text)


def evaluate(
    sampler: Sampler,
    render: Callable[[Problem], tuple[int, ...]],
    decode: Callable[[Sequence[int]], str],
    benchmark: Benchmark,
    problems: Sequence[Problem],
    *,
    samples: int,
    sampling: SamplingParams,
    seed: int,
) -> list[Answer]:
    """``samples`` graded answers to each problem, problem by problem.

    ``render`` gives the prompt ids of the plain problem (never privileged context), once for each problem; ``decode``
    turns completion ids, end token included, into the text that is graded. The result depends on nothing but the
    arguments and the sampler's weights. Raises ValueError for no problems, double ids, ``samples`` below 1, and
    several samples at temperature 0, which would all be the same.
    """
    if not problems:
        raise ValueError(f"benchmark {benchmark.name}: no problems to evaluate on")
    if samples < 1:
        raise ValueError(f"samples must be positive, got {samples}")
    if samples > 1 and sampling.temperature == 0:
        raise ValueError(f"{samples} samples at temperature 0 are copies of one: set samples to 1 or raise temperature")
    _refuse_double_ids(benchmark.name, problems)
    prompts = [render(problem) for problem in problems]
    asked = [
        (problem, prompt, index) for problem, prompt in zip(problems, prompts, strict=True) for index in range(samples)
    ]
    requests = [
        SampleRequest(prompt, request_seed(seed, benchmark.name, problem.id, index)) for problem, prompt, index in asked
    ]
    completions = sampler.sample(requests, sampling)
    texts = [decode(completion.token_ids) for completion in completions]
    grades = grade_many(benchmark, [(problem, text) for (problem, _, _), text in zip(asked, texts, strict=True)])
    return [
        Answer(problem.id, index, len(prompt), completion, text, grade)
        for (problem, prompt, index), completion, text, grade in zip(asked, completions, texts, grades, strict=True)
    ]


def record_evaluation(
    spool: Spool,
    run_dir: Path,
    run_id: str,
    update: int,
    benchmark: Benchmark,
    split: Split,
    problems: Sequence[Problem],
    answers: Sequence[Answer],
    cost: Mapping[str, float],
    seconds: float,
) -> EvaluationRecord:
    """Writes an evaluation: texts to ``samples/``, then problems, answers and grades, and last that it is complete.

    ``cost`` is the training cost at the evaluated checkpoint, ``seconds`` the evaluation's own duration. A reader that
    finds the closing record finds everything before it. Raises ValueError unless each problem has the same number of
    answers.
    """
    per_problem = _samples_per_problem(problems, answers)
    prompts = {problem.id: _prompt_text(problem) for problem in problems}
    rows = [_sample_row(answer, prompts[answer.problem_id]) for answer in answers]
    sample_file = write_samples(run_dir, "answers", f"{update:06d}-{benchmark.name}-{split}", rows)
    for problem in problems:
        spool.append(_problem_record(run_id, benchmark, split, problem, prompts[problem.id]))
    for row, answer in enumerate(answers):
        record = _answer_record(run_id, update, benchmark.name, split, answer, sample_file, row)
        spool.append(record)
        spool.append(_grade_record(record, answer.grade))
    spool.flush()
    closing = EvaluationRecord(
        run_id=run_id,
        update=update,
        benchmark=benchmark.name,
        split=split,
        problems=len(problems),
        samples_per_problem=per_problem,
        cost=dict(cost),
        seconds=seconds,
        at=time.time(),
    )
    spool.append(closing)
    spool.flush()
    return closing


def _samples_per_problem(problems: Sequence[Problem], answers: Sequence[Answer]) -> int:
    per_problem, rest = divmod(len(answers), len(problems)) if problems else (0, 0)
    expected = {(problem.id, index) for problem in problems for index in range(per_problem)}
    if rest or not per_problem or expected != {(answer.problem_id, answer.sample_index) for answer in answers}:
        raise ValueError(
            f"an evaluation records the same number of answers to each problem: got {len(answers)} answers to "
            f"{len(problems)} problems"
        )
    return per_problem


def _prompt_text(problem: Problem) -> str:
    """What was asked, for people: the message alone, or the messages with their roles."""
    if len(problem.prompt) == 1:
        return problem.prompt[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in problem.prompt)


def _sample_row(answer: Answer, prompt: str) -> dict[str, object]:
    return {
        "problem_id": answer.problem_id,
        "sample_index": answer.sample_index,
        "prompt": prompt,
        "completion": answer.text,
        "token_ids": list(answer.completion.token_ids),
        "logprobs": list(answer.completion.logprobs),
        "finish_reason": answer.completion.finish_reason,
        "feedback": answer.grade.feedback,
    }


def _problem_record(run_id: str, benchmark: Benchmark, split: Split, problem: Problem, prompt: str) -> ProblemRecord:
    return ProblemRecord(
        run_id=run_id,
        benchmark=benchmark.name,
        benchmark_version=benchmark.version,
        split=split,
        problem_id=problem.id,
        cluster=problem.cluster,
        answer=problem.answer,
        prompt=prompt,
    )


def _answer_record(
    run_id: str, update: int, benchmark: str, split: Split, answer: Answer, sample_file: str, row: int
) -> AnswerRecord:
    return AnswerRecord(
        run_id=run_id,
        update=update,
        benchmark=benchmark,
        split=split,
        problem_id=answer.problem_id,
        sample_index=answer.sample_index,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=len(answer.completion.token_ids),
        finish_reason=answer.completion.finish_reason,
        sample_file=sample_file,
        sample_row=row,
    )


def _grade_record(answer: AnswerRecord, grade: Grade) -> GradeRecord:
    return GradeRecord(
        run_id=answer.run_id,
        answer_key=answer.key,
        grader=grade.grader,
        version=grade.version,
        verdict=grade.verdict,
        score=grade.score,
        extracted=grade.extracted,
        well_formed=grade.well_formed,
        lenient=grade.lenient,
        error=grade.error,
    )
