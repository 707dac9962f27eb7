"""One update of a method beside the same update told by the references, step by step."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from evaluation.benchmarks.addition import ADDITION
from evaluation.problems import Problem
from tests.training.methods.reference.rows import Row
from tests.training.methods.stub_learner import Recurrent, ScriptedSampler, StubLearner
from tests.training.small import grade, ragged_problems, small_renderer
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.tokenizer import END, VOCABULARY
from training.learners.base import views_used
from training.method import Method, PhaseStartWeights, StudentWeights, override_all
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


# --- the same update, told by the references --------------------------------------------------------------------

Weights = dict[str, Tensor]
"""The student's parameters by name."""


def _logits(model: Recurrent, weights: Weights | None, prompt: tuple[int, ...], response: tuple[int, ...]) -> Tensor:
    """[T, V]: logits at prompt_length − 1 + t predict response token t."""
    given = dict(model.named_parameters()) if weights is None else weights
    ids = torch.tensor([[*prompt, *response]])
    states = functional_call(_States(model), {f"model.{name}": value for name, value in given.items()}, (ids,))
    return (states[0] @ given["head.weight"].T)[len(prompt) - 1 : -1]


class _States(torch.nn.Module):
    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model.states(ids)


@dataclass
class Teller:
    """Rows of the run's rollouts and references under any weights of the student."""

    run: Run

    def prompts(self, response: tuple[int, ...], problem: Problem) -> dict[str, tuple[int, ...] | None]:
        """What each view saw before ``response``, found among what the learner was asked; None if it did not look."""
        plain = self.run.trainer.renderer.student_ids(problem)
        found: dict[str, tuple[int, ...] | None] = {}
        for name, view in self.run.method.views.items():
            bare = view.context.kind == "none"
            seen = [
                ids[: -len(response)]
                for weights, ids in self.run.learner.looked
                if weights == view.weights and ids[-len(response) :] == response
            ]
            matching = {prompt for prompt in seen if (prompt == plain) == bare}
            assert len(matching) <= 1, f"view {name} saw the response behind {len(matching)} prompts"
            found[name] = next(iter(matching), None)
        found["student"] = plain
        return found

    def _row(self, response: tuple[int, ...], problem: Problem, now: Weights, begun: Weights) -> Row:
        logits: dict[str, Tensor | None] = {}
        for name, prompt in self.prompts(response, problem).items():
            weights = self.run.method.views[name].weights
            if prompt is None:
                logits[name] = None
            elif isinstance(weights, StudentWeights):
                logits[name] = _logits(self.run.start, now, prompt, response)
            elif isinstance(weights, PhaseStartWeights):
                logits[name] = _logits(self.run.start, begun, prompt, response)
            else:
                logits[name] = _logits(self.run.frozen[weights], None, prompt, response).detach()
        return Row(response, logits)

    def rollouts(
        self, now: Weights, begun: Weights, groups: Sequence[int] | None = None, *, old: bool = False
    ) -> list[Row]:
        """Rows of the rollouts (of the ``groups``); with ``old`` their ratio is to the weights at the beginning."""
        batch, size = self.run.batch, self.run.method.batch.group_size
        rows = []
        for index in range(len(batch.problems) * size):
            group = index // size
            if groups is not None and group not in groups:
                continue
            problem, response = batch.problems[group], batch.responses[index]
            row = self._row(response, problem, now, begun)
            before = None
            if old:
                at_start = self._row(response, problem, begun, begun)
                before = tuple(at_start.log_prob("student", TEMPERATURE).tolist())
            rows.append(
                replace(
                    row,
                    group=group,
                    reward=self.reward(index),
                    truncated=response[-1] != VOCABULARY[END],
                    old=before,
                    drawn=batch.logprobs[index],
                    reference=self.reference(problem),
                )
            )
        return rows

    def reward(self, index: int) -> float | None:
        return self.run.rewards[index] if self.run.rewards else self.run.batch.scores[index]

    def reference(self, problem: Problem) -> tuple[int, ...]:
        assert problem.solution
        return self.run.trainer.renderer.reference_ids(problem.solution)

    def references(self, now: Weights, begun: Weights, problems: Sequence[int] | None = None) -> list[Row]:
        chosen = range(len(self.run.batch.problems)) if problems is None else problems
        return [
            self._row(self.reference(problem), problem, now, begun)
            for problem in (self.run.batch.problems[index] for index in chosen)
        ]


def rows_at_start(run_: Run) -> list[Row]:
    """The rollouts under the weights before the update."""
    weights: Weights = {name: value.detach() for name, value in run_.start.named_parameters()}
    return Teller(run_).rollouts(weights, weights)


Loss = Callable[[Teller, Weights, Weights], Tensor]
"""The loss at one step: the rows, the weights now, the weights when the phase began."""


def told(run_: Run, phases: Sequence[Sequence[Loss]]) -> tuple[list[float], list[Weights]]:
    """Values and gradients of consecutive optimiser steps of consecutive phases."""
    teller = Teller(run_)
    now = {name: value.detach().clone() for name, value in run_.start.named_parameters()}
    values, gradients = [], []
    for losses in phases:
        begun = dict(now)
        for loss in losses:
            now = {name: value.detach().requires_grad_() for name, value in now.items()}
            value = loss(teller, now, begun)
            found = torch.autograd.grad(value, list(now.values()), allow_unused=True)
            gradient = {
                name: torch.zeros_like(now[name]) if part is None else part
                for name, part in zip(now, found, strict=True)
            }
            values.append(float(value.detach()))
            gradients.append(gradient)
            now = {name: (value - RATE * gradient[name]).detach() for name, value in now.items()}
    return values, gradients


@dataclass(frozen=True)
class Tolerance:
    value: float
    gradient: float
    relative: bool

    def check(self, found: Weights, expected: Weights) -> None:
        for name, gradient in expected.items():
            largest = float(gradient.abs().max())
            size = largest if self.relative else 1.0
            apart = float((found[name].double() - gradient).abs().max())
            assert apart <= self.gradient * size + 1e-14, f"{name}: gradients differ by {apart:.3g} of {largest:.3g}"


EXACT = Tolerance(1e-10, 1e-10, relative=True)
SINGLE = Tolerance(1e-5, 1e-5, relative=False)
RENYI = Tolerance(5e-5, 5e-5, relative=False)


def _reported(values: Sequence[float], phases: Sequence[Sequence[Loss]]) -> float:
    """The mean over each phase's steps, summed over the phases."""
    left, total = list(values), 0.0
    for phase in phases:
        total += sum(left[: len(phase)]) / len(phase)
        left = left[len(phase) :]
    return total


def agree(
    method: Method,
    batch: Batch,
    *phases: Loss | Sequence[Loss],
    update: int = 1,
    single: Tolerance = SINGLE,
    rewards: Sequence[float | None] | None = None,
    values: bool = True,
) -> Run:
    """Asserts that the method's update is the references', in fp64 and in fp32; gives back the fp64 run.

    Every optimiser step's gradient is compared and, with ``values``, the reported loss.
    """
    steps = [[phase] if callable(phase) else list(phase) for phase in phases]
    runs = []
    for dtype, tolerance in ((torch.float64, EXACT), (torch.float32, single)):
        finished = run(method, batch, update, dtype=dtype)
        finished.rewards = list(rewards or [])
        expected_values, gradients = told(finished, steps)
        assert len(finished.learner.steps) == len(gradients)
        for (_, found), expected in zip(finished.learner.steps, gradients, strict=True):
            assert any(float(part.abs().max()) > 1e-6 for part in expected.values()), "the reference has no gradient"
            tolerance.check(found, expected)
        if values:
            loss, expected_loss = finished.metrics["loss"], _reported(expected_values, steps)
            assert loss is not None
            assert abs(loss - expected_loss) <= tolerance.value * (1 + abs(expected_loss))
        runs.append(finished)
    return runs[0]
