"""A random two-layer Qwen3 with the tiny tokenizer, and what the training tests build from it in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.base import Benchmark
from evaluation.problems import Grade, Problem
from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from training.base_models.language import CONTEXT_LANGUAGE
from training.base_models.tokenizer import END, PAD, VOCABULARY, build_tokenizer
from training.learners.base import views_used
from training.learners.hf import HFLearner
from training.method import Method, TopKSupport, override_all
from training.methods import METHODS
from training.rendering import Renderer
from training.spec import ComputeSpec
from training.update import Trainer

CONTEXT_LENGTH = 128

NO_CLIP: dict[str, Any] = {"phases.student.terms.distill.entry_clip": None}


def small_model(seed: int = 0, **config: Any) -> Qwen3ForCausalLM:
    """Frozen and in evaluation mode, as load_base gives it; weights large enough to tell tokens apart."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT_LENGTH,
        "tie_word_embeddings": True,
        "initializer_range": 0.25,
        "pad_token_id": VOCABULARY[PAD],
        "eos_token_id": VOCABULARY[END],
        "attn_implementation": "eager",
    }
    return Qwen3ForCausalLM(Qwen3Config(**{**settings, **config})).eval().requires_grad_(False)


def small_renderer() -> Renderer:
    return Renderer(build_tokenizer(CONTEXT_LENGTH), "{problem}<|hint|>{context}")


def addition_problems(count: int) -> list[Problem]:
    return ADDITION.load("train", limit=count)


def ragged_problems(count: int) -> list[Problem]:
    """Questions of different lengths, each with its solution."""
    return [
        problem.model_copy(
            update={"prompt": (problem.prompt[0].model_copy(update={"content": problem.id[: 2 + index % 5]}),)}
        )
        for index, problem in enumerate(addition_problems(count))
    ]


def small_method(key: str, changes: Mapping[str, Any] | None = None) -> Method:
    """The method at a size for these tests: 3 prompts (2 × 2 with groups), at most 9 new tokens, a visible step."""
    method = METHODS[key]
    grouped = method.batch.group_size > 1
    base: dict[str, Any] = {
        "batch.prompts": 2 if grouped else 3,
        "batch.group_size": 2 if grouped else 1,
        "batch.step_prompts": None if method.batch.step_prompts is None else 1,
        "batch.max_draws": 3,
        "sampling.max_new_tokens": 9,
        "sampling.temperature": 1.0,
        "sampling.top_p": 1.0,
        "sampling.top_k": 0,
        **{f"phases.{name}.optimiser.learning_rate": 1e-3 for name in method.phases},
        "adapter": None,
        **{f"views.{name}.thinking": None for name in method.views},
        **{f"views.{name}.max_context_tokens": None for name in method.views},
    }
    if method.reward.overlong is not None:
        base["reward.overlong.cache_tokens"] = 4
    for phase_name, phase in method.phases.items():
        for name, term in phase.terms.items():
            if isinstance(getattr(term, "support", None), TopKSupport):
                base[f"phases.{phase_name}.terms.{name}.support.k"] = 8
    return override_all(method, {**base, **(changes or {})})


def small_trainer(
    method: Method,
    model: Qwen3ForCausalLM | None = None,
    *,
    compute: ComputeSpec | None = None,
    benchmark: Benchmark = ADDITION,
    renderer: Renderer | None = None,
    seed: int = 0,
) -> Trainer:
    compute = compute or ComputeSpec(micro_batch_rows=4, head_chunk_tokens=16, sampling_rows=8)
    renderer = renderer or small_renderer()
    learner = HFLearner(
        model or small_model(),
        {name: phase.optimiser for name, phase in method.phases.items()},
        compute,
        views_used(method.views, set(method.views)),
        end_ids=renderer.end_ids,
        pad_id=renderer.pad_id,
        adapter=method.adapter,
        seed=seed,
    )
    return Trainer(method, learner, renderer, CONTEXT_LANGUAGE, benchmark, compute, seed)


def graded_by(judge: Callable[[Problem, str], Grade]) -> Benchmark:
    """Addition with another grader."""
    return replace(ADDITION, grade=judge)


def grade(score: float | None) -> Grade:
    verdict = "not_scored" if score is None else "pass" if score == 1 else "fail"
    return Grade(verdict=verdict, score=score, grader="test", version="1")


class FixedSampler:
    """Returns given ids, whatever is asked; log-probabilities are zeros."""

    def __init__(self, responses: Sequence[tuple[int, ...]]) -> None:
        self.responses = responses
        self.requests: list[SampleRequest] = []

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        self.requests = list(requests)
        return [
            Completion(ids, (0.0,) * len(ids), "stop" if ids[-1] == VOCABULARY[END] else "length")
            for ids in self.responses[: len(requests)]
        ]


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The student's gradients so far."""
    assert isinstance(trainer.learner, HFLearner)
    return {
        name: parameter.grad.clone()
        for name, parameter in trainer.learner.student.named_parameters()
        if parameter.grad is not None
    }
