"""A learner whose models are a few lines of algebra, and which notes what it is asked; for tests of whole updates."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from training.base_models.tokenizer import END, VOCABULARY
from training.batches import ViewBatch
from training.learners.base import STUDENT, Tensors, ViewWeights
from training.method import PhaseStartWeights, StudentWeights

WIDTH = 8
MEMORY = 0.8


class Recurrent(nn.Module):
    """h_t = tanh(Σ_{s≤t} 0.8^{t−s}·E[id_s]), logits = W·h: causal, blind to padding, smooth in E and W."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        width, vocabulary = WIDTH, len(VOCABULARY)
        embedding = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
        head = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
        self.embedding = nn.Parameter(embedding.to(dtype))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = nn.Parameter(head.to(dtype))

    def states(self, ids: Tensor) -> Tensor:
        """[B, L] ids to [B, L, D]."""
        place = torch.arange(ids.shape[1])
        age = (place[:, None] - place[None, :]).to(self.embedding.dtype)
        decay = torch.where(age >= 0, MEMORY ** age.clamp(min=0), torch.zeros_like(age))
        return torch.tanh(torch.einsum("ts,bsd->btd", decay, self.embedding[ids]))


class ScriptedSampler:
    """Hands out given responses with given log-probabilities, in order, however many are asked for."""

    def __init__(self, responses: Sequence[tuple[int, ...]], logprobs: Sequence[tuple[float, ...]]) -> None:
        self.left = [*zip(responses, logprobs, strict=True)]

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        drawn, self.left = self.left[: len(requests)], self.left[len(requests) :]
        assert len(drawn) == len(requests), "the script has run out"
        return [
            Completion(ids, logprobs, "stop" if ids[-1] == VOCABULARY[END] else "length") for ids, logprobs in drawn
        ]


class StubLearner:
    """Independent random weights for every kind of view; phase-start weights are copies of the student.

    ``step`` keeps the gradients and moves along them at ``rate``; ``advance`` moves nothing, so that averaged and
    synced views stay what they were drawn as.
    """

    def __init__(
        self,
        weights: Sequence[ViewWeights],
        sampler: ScriptedSampler,
        *,
        dtype: torch.dtype,
        rate: float,
        seed: int = 0,
    ) -> None:
        self.device = torch.device("cpu")
        self.context_length = 512
        self.hidden_size = WIDTH
        self.student = Recurrent(seed, dtype)
        self.parameters = sum(parameter.numel() for parameter in self.student.parameters())
        self.trained_parameters = self.parameters
        self.models: dict[ViewWeights, Recurrent] = {}
        for place, kind in enumerate(weights):
            if isinstance(kind, StudentWeights):
                self.models[kind] = self.student
            elif isinstance(kind, PhaseStartWeights):
                self.models[kind] = copy.deepcopy(self.student).requires_grad_(False)
            else:
                self.models[kind] = Recurrent(seed + 100 + place, dtype).requires_grad_(False)
        self.rate = rate
        self.scripted = sampler
        self.drawn_by: list[ViewWeights] = []
        self.looked: set[tuple[ViewWeights, tuple[int, ...]]] = set()
        """(weights, prompt and response) of every row that was read."""
        self.asked_for_gradient: set[tuple[ViewWeights, tuple[int, ...]]] = set()
        self.steps: list[tuple[str, dict[str, Tensor]]] = []
        self.advanced: list[int] = []

    def sampler(self, weights: ViewWeights = STUDENT) -> ScriptedSampler:
        self.drawn_by.append(weights)
        return self.scripted

    def synchronise(self) -> None:
        pass

    def hidden(self, weights: ViewWeights, batch: ViewBatch, *, grad: bool) -> Tensor:
        lengths = batch.attention_mask.sum(1).tolist()
        for row, length in zip(batch.ids.tolist(), lengths, strict=True):
            self.looked.add((weights, tuple(row[:length])))
            if grad:
                self.asked_for_gradient.add((weights, tuple(row[:length])))
        with torch.set_grad_enabled(grad):
            return batch.gather(self.models[weights].states(batch.ids))

    def head(self, weights: ViewWeights) -> nn.Module:
        return self.models[weights].head

    def numerics(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begin_phase(self) -> None:
        for kind, model in self.models.items():
            if isinstance(kind, PhaseStartWeights):
                model.load_state_dict(self.student.state_dict())

    def step(self, phase: str, *, gradient_scale: float = 1.0) -> Mapping[str, float]:
        found = {}
        with torch.no_grad():
            for name, parameter in self.student.named_parameters():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad * gradient_scale
                found[name] = gradient
                parameter -= self.rate * gradient
                parameter.grad = None
        self.steps.append((phase, found))
        return {"grad_norm": 0.0, "learning_rate": self.rate}

    def advance(self, update: int) -> None:
        self.advanced.append(update)

    def state(self) -> dict[str, Tensors]:
        return {}

    def load_state(self, state: Mapping[str, Tensors]) -> None:
        pass
