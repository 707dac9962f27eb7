"""One update: problems → rollouts or references → grades → contexts → views → objective → step → moving averages."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Problem
from training.batches import row_chunks
from training.learners.base import Learner
from training.learners.hf import half_life
from training.method import EmaWeights, Method
from training.objective import ObjectiveResult, objective
from training.rendering import Renderer
from training.rollouts import Rollout, grade_rollouts, rollout_metrics, sample_rollouts
from training.spec import ComputeSpec
from training.streams import Stream, build_streams
from training.views import look

FORWARD_FLOP = 2
"""FLOP a parameter and token of a forward pass (one multiplication, one addition)."""
TRAINING_FLOP = 6
"""FLOP a parameter and token of a forward and a backward pass."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """What every update of a run shares."""

    method: Method
    phase: str
    learner: Learner
    renderer: Renderer
    benchmark: Benchmark
    compute: ComputeSpec
    run_seed: int


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did. ``metrics`` and ``cost`` (increments) go by the names of StepRecord."""

    update: int
    rollouts: list[Rollout]
    contexts: list[dict[str, str]]
    """Per rollout: view name -> the privileged text that it saw."""
    metrics: dict[str, float | None]
    cost: dict[str, float]


@dataclass(slots=True)
class _Account:
    """Sums over the micro-batches of one update."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    cost: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    loss: float = 0.0
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str, device: torch.device) -> Generator[None]:
        start = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds[name] += time.perf_counter() - start

    def add(self, result: ObjectiveResult) -> None:
        self.loss += float(result.loss.detach())
        for name, (numerator, denominator) in result.metrics.items():
            so_far = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = (so_far[0] + numerator, so_far[1] + denominator)


def run_update(trainer: Trainer, update: int, problems: Sequence[Problem]) -> UpdateResult:
    """Update number ``update`` (from 1) on ``problems``; the learner's weights are changed in place.

    Metrics: ``loss``, the objective's means (``loss/<term>``, ``divergence/<term>/…``, ``entropy/<view>`` …),
    ``grad_norm`` before clipping, ``learning_rate``, the rollout metrics, ``sampler_logprob_gap`` (mean absolute
    difference of the sampler's and the learner's log-probability of the drawn tokens, where both are at one
    temperature), ``half_life/<view>`` in updates of averaged views, and seconds ``t_generate``, ``t_verify``,
    ``t_teacher``, ``t_train``, ``t_sync``.

    Cost: ``flop`` is an estimate from all parameters P: 6·P a token that the learning view reads, 2·P a token that is
    drawn (with its prompt) or that another view reads; ``teacher_tokens`` are the prompt and response tokens of other
    views; ``trained_tokens`` the response tokens of learning views.

    Raises NonFiniteGradientError, ContextOverflowError, and ValueError for problems the method cannot use.
    """
    began = time.perf_counter()
    account = _Account()
    rollouts = _rollouts(trainer, update, problems, account) if trainer.method.uses_rollouts() else []
    streams = build_streams(trainer.method, trainer.phase, problems, rollouts, trainer.renderer)
    gap = _Gap()
    for stream in streams:
        _accumulate(trainer, stream, account, gap, rollouts)
    with account.timed("t_train", trainer.learner.device):
        stepped = trainer.learner.step(update)
    with account.timed("t_sync", trainer.learner.device):
        trainer.learner.synchronise()
    wall = time.perf_counter() - began
    account.cost["wall_seconds"] = wall
    account.cost["gpu_seconds"] = wall if trainer.learner.device.type == "cuda" else 0.0
    metrics: dict[str, float | None] = {
        "loss": account.loss,
        **{name: top / bottom if bottom else None for name, (top, bottom) in account.sums.items()},
        **stepped,
        **(rollout_metrics(rollouts) if rollouts else {}),
        **gap.metrics(),
        **_half_lives(trainer.method),
        **{name: account.seconds[name] for name in ("t_generate", "t_verify", "t_teacher", "t_train", "t_sync")},
    }
    return UpdateResult(update, rollouts, _contexts(streams, rollouts), metrics, dict(account.cost))


def _rollouts(trainer: Trainer, update: int, problems: Sequence[Problem], account: _Account) -> list[Rollout]:
    method, learner, renderer = trainer.method, trainer.learner, trainer.renderer
    prompts = [renderer.student_ids(problem) for problem in problems]
    with account.timed("t_generate", learner.device):
        rollouts = sample_rollouts(
            learner.sampler(),
            problems,
            prompts,
            group_size=method.batch.group_size,
            params=method.sampling,
            run_seed=trainer.run_seed,
            update=update,
        )
    drawn = sum(len(rollout.completion.token_ids) for rollout in rollouts)
    read = drawn + sum(len(rollout.prompt_ids) for rollout in rollouts)
    account.cost["rollout_tokens"] += drawn
    account.cost["flop"] += FORWARD_FLOP * learner.parameters * read
    with account.timed("t_verify", learner.device):
        return grade_rollouts(rollouts, trainer.benchmark, renderer.decode)


def _accumulate(trainer: Trainer, stream: Stream, account: _Account, gap: _Gap, rollouts: Sequence[Rollout]) -> None:
    """Adds the gradient of every micro-batch of ``stream``."""
    denominators = stream.denominators()
    temperature = getattr(next(iter(stream.terms.values())), "temperature", None)
    comparable = stream.data == "rollouts" and temperature == trainer.method.sampling.temperature
    kept = f"logprob/{stream.learns}"
    for rows in row_chunks(len(stream.responses), trainer.compute.micro_batch_rows):
        batch = stream.token_batch(rows, trainer.learner.device)
        hidden, heads = _look(trainer, stream, rows, account)
        with account.timed("t_train", trainer.learner.device), trainer.learner.numerics():
            result = objective(
                stream.terms,
                batch,
                hidden,
                heads,
                stream.learns,
                denominators,
                chunk_tokens=trainer.compute.head_chunk_tokens,
                keep=frozenset({kept}) if comparable else frozenset(),
            )
        with account.timed("t_train", trainer.learner.device):
            if result.loss.requires_grad:
                result.loss.backward()
        account.add(result)
        if comparable:
            gap.add(result.token_values[kept], rollouts[rows.start : rows.stop])
    tokens = sum(len(response) for response in stream.responses)
    account.cost["trained_tokens"] += tokens
    account.cost["reference_tokens"] += tokens if stream.data == "references" else 0


def _look(
    trainer: Trainer, stream: Stream, rows: range, account: _Account
) -> tuple[dict[str, torch.Tensor], dict[str, torch.nn.Module]]:
    """Hidden states and heads of every view of the stream; only the learning view records a graph."""
    learner, part = trainer.learner, slice(rows.start, rows.stop)
    responses, names = stream.responses[part], stream.names[part]
    hidden, heads = {}, {}
    for name, view_prompts in stream.views.items():
        learns, view = name == stream.learns, trainer.method.views[name]
        with account.timed("t_train" if learns else "t_teacher", learner.device):
            seen = look(
                learner,
                view,
                view_prompts.prompts[part],
                responses,
                names,
                pad_id=trainer.renderer.pad_id,
                grad=learns,
            )
        hidden[name], heads[name] = seen.hidden, learner.head(view.weights)
        account.cost["flop"] += (TRAINING_FLOP if learns else FORWARD_FLOP) * learner.parameters * seen.tokens
        if not learns:
            account.cost["teacher_tokens"] += seen.tokens
    return hidden, heads


@dataclass(slots=True)
class _Gap:
    """How far the sampler's log-probabilities are from the learner's."""

    total: float = 0.0
    count: int = 0

    def add(self, learner_logprobs: torch.Tensor, rollouts: Sequence[Rollout]) -> None:
        drawn = torch.tensor([value for rollout in rollouts for value in rollout.completion.logprobs])
        differences = (learner_logprobs.detach().cpu() - drawn).abs()
        used = torch.isfinite(differences)
        self.total += float(differences[used].double().sum())
        self.count += int(used.sum())

    def metrics(self) -> dict[str, float | None]:
        return {"sampler_logprob_gap": self.total / self.count} if self.count else {}


def _half_lives(method: Method) -> dict[str, float | None]:
    return {
        f"half_life/{name}": half_life(view.weights.teacher_update_rate)
        for name, view in method.views.items()
        if isinstance(view.weights, EmaWeights)
    }


def _contexts(streams: Sequence[Stream], rollouts: Sequence[Rollout]) -> list[dict[str, str]]:
    texts: list[dict[str, str]] = [{} for _ in rollouts]
    for stream in streams:
        if stream.data == "rollouts":
            for name, view in stream.views.items():
                for row, context in enumerate(view.contexts):
                    if context is not None and context.text is not None:
                        texts[row][name] = context.text
    return texts
