"""Asking a model a benchmark's problems and grading its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluation.benchmarks.base import Benchmark
from evaluation.grading.batch import grade_many
from evaluation.problems import Grade, Problem
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
    turns completion ids, end token included, into text, which is graded up to the first stop text. The result depends
    on nothing but the arguments and the sampler's weights. Raises ValueError for no problems, double ids, ``samples``
    below 1, and several samples at temperature 0, which would all be the same.
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
    texts = [sampling.graded(decode(completion.token_ids)) for completion in completions]
    grades = grade_many(benchmark, [(problem, text) for (problem, _, _), text in zip(asked, texts, strict=True)])
    return [
        Answer(problem.id, index, len(prompt), completion, text, grade)
        for (problem, prompt, index), completion, text, grade in zip(asked, completions, texts, grades, strict=True)
    ]
