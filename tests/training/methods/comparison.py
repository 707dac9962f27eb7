"""One update of a method beside the same update told by the references, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import functional_call

from evaluation.problems import Problem
from tests.training.methods import runs
from tests.training.methods.reference.rows import Row
from tests.training.methods.runs import TEMPERATURE, Batch, Run, run
from tests.training.methods.stub_learner import Recurrent
from training.base_models.tokenizer import END, VOCABULARY
from training.method import Method, PhaseStartWeights, StudentWeights

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
            now = {name: (value - runs.RATE * gradient[name]).detach() for name, value in now.items()}
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
    finished_runs = []
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
        finished_runs.append(finished)
    return finished_runs[0]
