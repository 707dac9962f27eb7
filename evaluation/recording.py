"""Recording what a model answered: texts to sample files, facts to the spool, part by part."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.benchmarks.base import Benchmark
from evaluation.evaluate import Answer
from evaluation.problems import Grade, Problem, Split
from evaluation.results.records import AnswerRecord, EvaluationRecord, GradeRecord, ProblemRecord
from evaluation.results.spool import Spool, write_samples


def record_answers(
    spool: Spool,
    run_dir: Path,
    run_id: str,
    update: int,
    benchmark: Benchmark,
    split: Split,
    problems: Sequence[Problem],
    answers: Sequence[Answer],
    part: int,
) -> None:
    """Writes one part of an evaluation: the texts to ``samples/``, then its problems, answers and grades.

    ``problems`` are those of the part, ``part`` counts from 0; the file's name follows from the arguments, so a part
    done again replaces its file. Raises ValueError unless each problem has the same number of answers.
    """
    _refuse_uneven(problems, answers)
    prompts = {problem.id: prompt_text(problem) for problem in problems}
    rows = [_sample_row(answer, prompts[answer.problem_id]) for answer in answers]
    sample_file = write_samples(run_dir, "answers", f"{update:06d}-{benchmark.name}-{split}-{part:04d}", rows)
    for problem in problems:
        spool.append(_problem_record(run_id, benchmark, split, problem, prompts[problem.id]))
    for row, answer in enumerate(answers):
        record = _answer_record(run_id, update, benchmark.name, split, answer, sample_file, row)
        spool.append(record)
        spool.append(grade_record(run_id, record.key, answer.grade))
    spool.flush()


def close_evaluation(
    spool: Spool,
    run_id: str,
    update: int,
    benchmark: Benchmark,
    split: Split,
    problems: int,
    samples: int,
    cost: Mapping[str, float],
    seconds: float,
) -> EvaluationRecord:
    """Says that ``samples`` answers to each of so many problems are recorded: a reader that finds this finds all.

    ``cost`` is the training cost at the evaluated checkpoint, ``seconds`` the evaluation's own duration.
    """
    closing = EvaluationRecord(
        run_id=run_id,
        update=update,
        benchmark=benchmark.name,
        split=split,
        problems=problems,
        samples_per_problem=samples,
        cost=dict(cost),
        seconds=seconds,
        at=time.time(),
    )
    spool.append(closing)
    spool.flush()
    return closing


def _refuse_uneven(problems: Sequence[Problem], answers: Sequence[Answer]) -> None:
    per_problem, rest = divmod(len(answers), len(problems)) if problems else (0, 0)
    expected = {(problem.id, index) for problem in problems for index in range(per_problem)}
    if rest or not per_problem or expected != {(answer.problem_id, answer.sample_index) for answer in answers}:
        raise ValueError(
            f"an evaluation records the same number of answers to each problem: got {len(answers)} answers to "
            f"{len(problems)} problems"
        )


def prompt_text(problem: Problem) -> str:
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


def grade_record(run_id: str, answer_key: str, grade: Grade) -> GradeRecord:
    """The judgement of one answer as a fact."""
    return GradeRecord(
        run_id=run_id,
        answer_key=answer_key,
        grader=grade.grader,
        version=grade.version,
        verdict=grade.verdict,
        score=grade.score,
        extracted=grade.extracted,
        well_formed=grade.well_formed,
        lenient=grade.lenient,
        error=grade.error,
    )
