"""Updates of a method on scripted rollouts and a small recurrent model."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from evaluation.benchmarks.addition import ADDITION
from evaluation.problems import Problem
from tests.training.methods.stub_learner import Recurrent, ScriptedSampler, StubLearner
from tests.training.small import grade, ragged_problems, small_renderer
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.tokenizer import END, VOCABULARY
from training.learners.base import views_used
from training.method import Method, override_all
from training.methods import METHODS, PRESETS
from training.spec import ComputeSpec
from training.update import Trainer, UpdateResult, run_update

RATE = 0.3
TEMPERATURE = 0.9
LETTERS = [VOCABULARY[letter] for letter in "abcdefghijklmnopqrstuvwxyz"]
DIGITS = [VOCABULARY[digit] for digit in "0123456789"]
LONGEST = 9


def paper(
    key: str,
    changes: Mapping[str, Any] | None = None,
    *,
    prompts: int = 3,
    group_size: int = 1,
    preset: str | None = None,
) -> Method:
    """The method as published (or of a ``preset``), with batch and lengths of a test; nothing in its loss changes."""
    method = METHODS[key] if preset is None else override_all(METHODS[key], PRESETS[key][preset])
    base: dict[str, Any] = {
        "batch.prompts": prompts,
        "batch.group_size": group_size,
        "batch.step_prompts": None,
        "batch.groups": "all",
        "sampling.max_new_tokens": LONGEST,
        "sampling.temperature": TEMPERATURE,
        "sampling.top_p": 1.0,
        "sampling.top_k": 0,
        "adapter": None,
        **{f"views.{name}.thinking": None for name in method.views},
    }
    if method.reward.overlong is not None:
        base["reward.overlong.cache_tokens"] = 4
    return override_all(method, {**base, **(changes or {})})


@dataclass
class Batch:
    """What an update draws and how it is judged."""

    problems: list[Problem]
    responses: list[tuple[int, ...]]
    logprobs: list[tuple[float, ...]]
    scores: list[float | None]
    """Per rollout: the grade's score; None is not scored."""


def draw(method: Method, scores: Sequence[float | None] | None = None, *, seed: int = 0, rounds: int = 1) -> Batch:
    """Ragged random responses, each begun by a letter of its own, so that its text says which it is."""
    source = random.Random(seed)
    count = method.batch.prompts * method.batch.group_size * rounds
    responses, logprobs = [], []
    for index in range(count):
        length = source.randrange(1, LONGEST)
        cut = length == LONGEST - 1
        body = [source.choice(DIGITS) for _ in range(length)]
        responses.append((LETTERS[index], *body[: LONGEST - 1], *(() if cut else (VOCABULARY[END],)))[:LONGEST])
        logprobs.append(tuple(source.uniform(-4.0, -1.0) for _ in responses[-1]))
    judged: list[float | None] = [source.choice([0.0, 1.0]) for _ in range(count)] if scores is None else [*scores]
    assert len(judged) == count
    return Batch(ragged_problems(method.batch.prompts), responses, logprobs, judged)


@dataclass
class Run:
    """A finished update and everything needed to tell it again."""

    method: Method
    batch: Batch
    learner: StubLearner
    trainer: Trainer
    start: Recurrent
    """The student's weights before the update, fp64."""
    frozen: dict[Any, Recurrent]
    """Weights of the other views, fp64."""
    rewards: list[float | None] = field(default_factory=list)
    """Per rollout, where they are not the scores."""
    result: UpdateResult | None = None

    @property
    def metrics(self) -> dict[str, float | None]:
        assert self.result is not None
        return self.result.metrics


def judged_by(batch: Batch, decode: Callable[[Sequence[int]], str]) -> Callable[[Problem, str], Any]:
    verdicts = {decode(ids): score for ids, score in zip(batch.responses, batch.scores, strict=True)}
    return lambda problem, text: grade(verdicts[text])


def prepare(
    method: Method,
    batch: Batch,
    *,
    dtype: torch.dtype = torch.float64,
    rows: int = 64,
    chunk: int = 64,
    seed: int = 0,
    same_weights: bool = False,
) -> Run:
    """An update that has not run. ``same_weights`` starts every view from the student's weights."""
    renderer = small_renderer()
    sampler = ScriptedSampler(batch.responses, batch.logprobs)
    weights = views_used(method.views, set(method.views))
    learner = StubLearner(weights, sampler, dtype=dtype, rate=RATE, seed=seed)
    if same_weights:
        for model in learner.models.values():
            model.load_state_dict(learner.student.state_dict())
    trainer = Trainer(
        method,
        learner,
        renderer,
        CONTEXT_LANGUAGE,
        replace(ADDITION, grade=judged_by(batch, renderer.decode)),
        ComputeSpec(micro_batch_rows=rows, head_chunk_tokens=chunk, sampling_rows=8),
        0,
    )
    frozen = {kind: copy.deepcopy(model).double() for kind, model in learner.models.items()}
    return Run(method, batch, learner, trainer, copy.deepcopy(learner.student).double(), frozen)


def run(method: Method, batch: Batch, update: int = 1, **how: Any) -> Run:
    """``method``'s update number ``update`` on ``batch``."""
    prepared = prepare(method, batch, **how)
    prepared.result = run_update(prepared.trainer, update, batch.problems)
    return prepared
